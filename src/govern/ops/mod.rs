//! Running the gateway: health report, circuit breakers, settings in effect, reloading, logs, word to the
//! service manager, and the watch over the store and the cores.
//!
//! Everything here is read or written from any thread without a lock on the data path. Knows the meter and the
//! settings; knows neither the stages of a request nor the shape of the REST API.

pub mod analysis;
pub mod breaker;
pub mod clock;
pub mod cores;
pub mod descriptors;
pub mod exchanges;
pub mod health;
pub mod live;
pub mod log;
pub mod memory;
pub mod notify;
pub mod probe;
pub mod reload;
pub mod repeats;
pub mod store;

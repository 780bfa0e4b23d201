//! A client's connection: how it is let in, waits, is read, written and ended, and which one is evicted when room is
//! needed. Knows no stage of a request's journey.

mod admission;
pub(crate) mod body;
mod conn;
pub(crate) mod date;
mod handshake;
pub(crate) mod own_answer;
pub(crate) mod pace;
pub(crate) mod page;
pub(crate) mod session;
mod turn_away;
pub(crate) mod watch;

pub use admission::{Admission, evict, make_room};
pub use conn::ClientConn;
pub(crate) use handshake::shake_hands;
pub use turn_away::{say_no_room, turn_away};

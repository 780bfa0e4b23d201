//! What the listener says while the gateway starts: the store may have to be opened, migrated, checked or waited for, and a
//! probe is to hear `starting` meanwhile, not silence.
//!
//! | path           | answer                          |
//! |----------------|---------------------------------|
//! | health report  | 503, `status` is `starting`     |
//! | `/livez`       | 200 `alive`                     |
//! | `/readyz`      | 503 `starting`                  |
//! | everything else| 503 `service_starting`, retry   |
//!
//! Only sockets that this process has bound itself are answered on. Those of a process that is taken over are served by it
//! until this one is ready, and clients of a service manager's socket wait: that is what it holds the socket for.
//!
//! Invariant: no core accepts before the thread has ended, so none waits for a connection that went elsewhere.

use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use weir_config::Settings;
use weir_config::vocab::{Dialect, TraceId};

use super::visitors::{Reply, Visitors};
use crate::api;
use crate::exchange::Refusal;
use crate::flow::fault_refusal;
use crate::inspect;
use crate::ops::health::Health;
use crate::rt::{self, TlsAcceptor};
use crate::wire::{Fault, RequestHead};

/// How often the thread sees whether it is to end: what a start is longer for it.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// The running thread; dropping it ends it.
pub(super) struct Starting {
    over: Arc<AtomicBool>,
    handle: Option<JoinHandle<()>>,
}

impl Starting {
    /// Answers on `listeners` until it is dropped.
    pub(super) fn answer(
        listeners: Vec<TcpListener>,
        settings: Arc<Settings>,
        health: Arc<Health>,
        tls: Option<Arc<TlsAcceptor>>,
    ) -> io::Result<Self> {
        let over = Arc::new(AtomicBool::new(false));
        if listeners.is_empty() {
            return Ok(Self { over, handle: None });
        }
        let stop = Arc::clone(&over);
        let handle = std::thread::Builder::new().name("weir-starting".to_owned()).spawn(move || {
            let visitors = Visitors::new("weir-visitor", tls, move |asked| Ok(reply(asked, &settings, &health)));
            let mut number = 0;
            while !stop.load(Ordering::Acquire) {
                if let Some(stream) = rt::accept_any(&listeners, LOOK_EVERY) {
                    number += 1;
                    visitors.serve(number, stream);
                }
            }
        })?;
        Ok(Self { over, handle: Some(handle) })
    }
}

impl Drop for Starting {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
        if self.handle.take().is_some_and(|handle| handle.join().is_err()) {
            tracing::error!("the thread that answers during the start panicked");
        }
    }
}

fn reply(asked: Result<&RequestHead, &Fault>, settings: &Settings, health: &Health) -> Reply {
    let head = match asked {
        Ok(head) => head,
        Err(fault) => return refused(&fault_refusal(fault), Dialect::ChatCompletions),
    };
    // A report that has been moved leaves its path to the provider.
    let path = match head.path() {
        path if path == settings.health_check.path => "/health",
        "/health" => "",
        path => path,
    };
    let Some(answer) = api::probe(health, head.method(), path) else {
        let refusal = Refusal::new(
            503,
            "service_starting",
            "the gateway is starting: its database is being opened and its parts are being built; ask again in a \
             second, or wait until /readyz answers 200",
        );
        let dialect = inspect::route(None, head.path(), &settings.upstream.host).dialect;
        return refused(&refusal.header("Retry-After", 1), dialect);
    };
    Reply {
        status: answer.status().as_u16(),
        content_type: "application/json",
        fields: Vec::new(),
        body: String::from_utf8_lossy(answer.body()).into_owned(),
    }
}

fn refused(refusal: &Refusal, dialect: Dialect) -> Reply {
    Reply {
        status: refusal.status,
        content_type: "application/json",
        fields: refusal.headers.clone(),
        body: String::from_utf8_lossy(&refusal.body(dialect, TraceId::fresh())).into_owned(),
    }
}

//! The way in and out: bounds, panics, slow readers, foreign executors, the end.

use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use parking_lot::Mutex;

use super::fake::{Fake, World, json_of, refusal, request, runtime};
use crate::api::serve;
use crate::control::{ApiError, channel};
use crate::meter::Registry;

const INTERNAL: &str = "the gateway failed to answer; its log says why";

#[test]
fn a_panicking_reader_costs_one_answer_and_is_counted() {
    let panicked = AtomicUsize::new(0);
    let world = World::over(Arc::new(Fake::that(move || {
        assert_ne!(panicked.fetch_add(1, Ordering::SeqCst), 0, "the first read panics");
        Ok(())
    })));
    assert_eq!(world.get("/api/v1/spans"), (500, refusal("internal_error", INTERNAL)));
    assert_eq!(world.get("/api/v1/spans").0, 200);
    assert_eq!(world.registry.shared().panics(), 1);
}

#[test]
fn a_panicking_handler_costs_one_answer_and_is_counted() {
    async fn broken() -> &'static str {
        panic!("a handler is broken")
    }
    let registry = Registry::new();
    let router = Router::new().route("/broken", get(broken)).route("/fine", get(async || "fine"));
    runtime().block_on(async {
        let (handle, calls) = channel(8);
        let serving = tokio::spawn(serve(router, calls, registry.shared().clone()));
        let response = handle.call(request("GET", "/broken", &[])).await.unwrap();
        assert_eq!(json_of(&response), (500, refusal("internal_error", INTERNAL)));
        assert_eq!(&handle.call(request("GET", "/fine", &[])).await.unwrap().body()[..], b"fine");
        drop(handle);
        serving.await.unwrap();
    });
    assert_eq!(registry.shared().panics(), 1);
}

#[test]
fn a_full_queue_is_refused_at_once() {
    let (handle, _calls) = channel(2);
    let mut context = Context::from_waker(Waker::noop());
    let mut waiting: Vec<_> = (0..2).map(|_| Box::pin(handle.call(request("GET", "/health", &[])))).collect();
    assert!(waiting.iter_mut().all(|call| call.as_mut().poll(&mut context).is_pending()));
    let watch = handle.watch();
    assert_eq!(((watch.depth)(), watch.capacity), (2, 2));

    let refused = pin!(handle.call(request("GET", "/health", &[]))).poll(&mut context);
    assert_eq!(refused.map(|answer| answer.err()), Poll::Ready(Some(ApiError::Full)));
    let refused = ApiError::Full.refusal();
    let message = "the API is asked more than it can answer at once; try again in a second";
    assert_eq!((refused.status, refused.error_type, &*refused.message), (503, "api_saturated", message));
    assert!(refused.headers.contains(&("Retry-After", "1".to_owned())));
}

#[test]
fn urgent_calls_pass_a_full_queue() {
    let (handle, calls) = channel(1);
    let registry = Registry::new();
    let mut waits = Box::pin(handle.call(request("GET", "/slow", &[])));
    assert!(waits.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    let order = Arc::new(Mutex::new(Vec::new()));
    let noting = |name: &'static str| {
        let order = order.clone();
        get(async move || order.lock().push(name))
    };
    let router = Router::new().route("/slow", noting("ordinary")).route("/urgent", noting("urgent"));
    runtime().block_on(async {
        assert_eq!(handle.call(request("GET", "/slow", &[])).await.err(), Some(ApiError::Full));
        let mut urgent = Box::pin(handle.call_urgently(request("GET", "/urgent", &[])));
        assert!(urgent.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        let serving = tokio::spawn(serve(router, calls, registry.shared().clone()));
        assert_eq!(urgent.await.unwrap().status(), 200);
        assert_eq!(waits.as_mut().await.unwrap().status(), 200);
        serving.abort();
    });
    assert_eq!(*order.lock(), ["urgent", "ordinary"]);
}

#[test]
fn a_stopped_control_thread_is_told_apart() {
    let (handle, calls) = channel(2);
    drop(calls);
    let stopped = runtime().block_on(handle.call(request("GET", "/health", &[]))).err();
    assert_eq!(stopped, Some(ApiError::Stopped));
    let message = "the gateway is stopping; ask another instance";
    let stopping = ApiError::Stopped.refusal();
    assert_eq!((stopping.status, stopping.error_type, &*stopping.message), (503, "shutting_down", message));
}

#[test]
fn slow_reads_keep_to_their_readers_and_health_answers_meanwhile() {
    let (started, starts) = mpsc::channel();
    let (release, gate) = mpsc::channel::<()>();
    let (started, gate) = (Mutex::new(started), Mutex::new(gate));
    let world = World::over(Arc::new(Fake::that(move || {
        started.lock().send(()).ok();
        gate.lock().recv().ok();
        Ok(())
    })));
    world.health.ready();
    world.run(|handle| async move {
        let slow: Vec<_> = (0..7)
            .map(|_| {
                let handle = handle.clone();
                tokio::spawn(async move { handle.call(request("GET", "/api/v1/spans", &[])).await.unwrap().status() })
            })
            .collect();
        let mut running = 0;
        while running < 4 {
            running += starts.try_iter().count();
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        for path in ["/health", "/metrics"] {
            assert_eq!(handle.call(request("GET", path, &[])).await.unwrap().status(), 200, "{path}");
        }
        assert_eq!(running + starts.try_iter().count(), 4, "the other three wait for a reader");
        drop(release);
        for read in slow {
            assert_eq!(read.await.unwrap(), 200);
        }
    });
}

#[test]
fn more_reads_than_may_wait_are_refused_and_health_answers() {
    let (release, gate) = mpsc::channel::<()>();
    let gate = Mutex::new(gate);
    let world = World::over(Arc::new(Fake::that(move || {
        gate.lock().recv().ok();
        Ok(())
    })));
    world.health.ready();
    world.run(|handle| async move {
        let (said, mut statuses) = tokio::sync::mpsc::unbounded_channel();
        for _ in 0..40 {
            let (handle, said) = (handle.clone(), said.clone());
            tokio::spawn(async move {
                let response = handle.call(request("GET", "/api/v1/spans", &[])).await.unwrap();
                said.send((response.status().as_u16(), response.headers().contains_key("retry-after"))).ok();
            });
        }
        // 4 read, 24 wait: half of all places, which is what one tenant gets; the others are told at once.
        for _ in 0..12 {
            assert_eq!(statuses.recv().await, Some((503, true)));
        }
        assert_eq!(handle.call(request("GET", "/health", &[])).await.unwrap().status(), 200);
        let other = handle.clone();
        let other = tokio::spawn(async move {
            let fields = [("x-service-tenant-id", "6f1c2b1e-0d5a-4c6f-9e7b-0d9a4c3b2a10")];
            other.call(request("GET", "/api/v1/spans", &fields)).await.unwrap().status()
        });
        drop(release);
        assert_eq!(other.await.unwrap(), 200, "another tenant waits its turn and is not refused");
        for _ in 0..28 {
            assert_eq!(statuses.recv().await, Some((200, false)));
        }
    });
}

/// Runs a future with nothing but a waker, as the core threads' executor does.
fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(outcome) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return outcome;
        }
        thread::park();
    }
}

#[test]
fn core_threads_need_no_tokio_to_ask() {
    let world = World::over(Arc::new(Fake::holding(Vec::new())));
    let (handle, calls) = channel(8);
    let serving = serve(crate::api::router(world.api()), calls, world.registry.shared().clone());
    let control = thread::spawn(|| runtime().block_on(serving));
    let cores: Vec<_> = (0..2)
        .map(|_| {
            let handle = handle.clone();
            thread::spawn(move || {
                for _ in 0..50 {
                    let response = block_on(handle.call(request("GET", "/api/v1/traces", &[]))).unwrap();
                    assert_eq!(json_of(&response).0, 200);
                }
            })
        })
        .collect();
    cores.into_iter().for_each(|core| core.join().unwrap());
    drop(handle);
    // The serving loop ends with its last handle.
    control.join().unwrap();
}

//! The seam's own promises, on every driver this kernel grants: a panic costs one task, a deadline ends one operation.

use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use weir_config::settings::IoDriver;

use super::driver::LocalFuture;
use super::*;

/// Runs `body` on a core of each driver.
fn on_each_driver(body: fn(mpsc::Sender<String>) -> LocalFuture, expected: &[&str]) {
    let mut modes = vec![DriverMode::Epoll];
    // Every ring this kernel grants: older kernels have only the later ones.
    let rings = [IoDriver::IoUring, IoDriver::IoUringCoop, IoDriver::IoUringPlain];
    modes.extend(rings.into_iter().filter_map(|ring| probe(ring).ok()));
    for mode in modes {
        let (said, heard) = mpsc::channel();
        let start = CoreStart { index: 0, cpu: None, pulse: Arc::new(Heartbeats::new(1)) };
        let core = start_core(start, mode, move || body(said)).unwrap();
        core.join().unwrap();
        assert_eq!(heard.iter().collect::<Vec<_>>(), expected, "{mode}");
    }
}

/// A connection taken over by this core, and its other end.
async fn connection() -> (Conn, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let conn = connect(listener.local_addr().unwrap(), Duration::from_secs(5)).await.unwrap();
    (conn, listener.accept().unwrap().0)
}

#[test]
fn a_panic_costs_its_task_and_nothing_else() {
    on_each_driver(
        |said| {
            Box::pin(async move {
                let reported = said.clone();
                spawn(async { panic!("on purpose") }, move |message| drop(reported.send(message.to_owned())));
                sleep(Duration::from_millis(5)).await;
                let done = said.clone();
                spawn(async move { drop(done.send("the next task runs".to_owned())) }, |_| {});
                sleep(Duration::from_millis(5)).await;
            })
        },
        &["on purpose", "the next task runs"],
    );
}

#[cfg(debug_assertions)]
#[test]
fn a_task_that_holds_its_core_is_noticed() {
    on_each_driver(
        |said| {
            Box::pin(async move {
                let reported = |said: &mpsc::Sender<String>| drop(said.send(slow_poll::count().to_string()));
                // Waiting is no work, however long it takes.
                spawn(sleep(Duration::from_millis(5)), |_| {});
                sleep(Duration::from_millis(10)).await;
                reported(&said);
                let busy = async {
                    for _ in 0..2 {
                        let began = clock::thread_cpu_time();
                        while clock::thread_cpu_time() - began < Duration::from_millis(2) {}
                        sleep(Duration::from_millis(1)).await;
                    }
                };
                spawn(busy, |_| {});
                for _ in 0..1_000 {
                    if slow_poll::count() == 2 {
                        break;
                    }
                    sleep(Duration::from_millis(5)).await;
                }
                reported(&said);
            })
        },
        &["0", "2"],
    );
}

#[test]
fn a_deadline_ends_a_read_and_writing_goes_on() {
    on_each_driver(
        |said| {
            Box::pin(async move {
                let (mut conn, mut peer) = connection().await;
                let deadline = Deadline::new();
                deadline.arm(Duration::from_millis(20), On::StopReading(conn.fd()));
                let (got, _) = conn.read(BytesMut::with_capacity(64)).await;
                drop(said.send(format!("read {:?}, fired {}", got.ok(), deadline.disarm())));
                conn.write_all(Bytes::from_static(b"still here")).await.unwrap();
                let mut text = [0; 10];
                std::io::Read::read_exact(&mut peer, &mut text).unwrap();
                drop(said.send(String::from_utf8_lossy(&text).into_owned()));
            })
        },
        &["read Some(0), fired true", "still here"],
    );
}

#[test]
fn a_deadline_that_was_taken_back_does_nothing() {
    on_each_driver(
        |said| {
            Box::pin(async move {
                let (mut conn, mut peer) = connection().await;
                let deadline = Deadline::new();
                deadline.arm(Duration::from_millis(10), On::Stop(conn.fd()));
                drop(said.send(format!("fired {}", deadline.disarm())));
                sleep(Duration::from_millis(40)).await;
                std::io::Write::write_all(&mut peer, b"late").unwrap();
                let (got, buf) = conn.read(BytesMut::with_capacity(64)).await;
                drop(said.send(format!("{:?} {:?}", got.ok(), &buf[..])));
            })
        },
        &["fired false", "Some(4) [108, 97, 116, 101]"],
    );
}

#[test]
fn a_watch_tells_departure_from_words() {
    on_each_driver(
        |said| {
            Box::pin(async move {
                let (conn, peer) = connection().await;
                assert!(conn.is_quiet());
                let watch = conn.watch().unwrap();
                let early = within(Duration::from_millis(20), watch.gone()).await;
                drop(said.send(format!("{:?}", early.is_some())));
                drop(peer);
                let late = within(Duration::from_secs(5), watch.gone()).await;
                drop(said.send(format!("{:?}", late.is_some())));
            })
        },
        &["false", "true"],
    );
}

#[test]
fn what_is_sent_after_we_have_ended_the_reading_arrives_and_only_the_state_tells_of_departures() {
    on_each_driver(
        |said| {
            Box::pin(async move {
                let (mut conn, mut peer) = connection().await;
                stop_reading(conn.fd());
                let watch = conn.watch().unwrap().by_state();
                let early = within(Duration::from_millis(120), watch.gone()).await;
                drop(said.send(format!("{} {}", early.is_some(), conn.peer_has_ended())));
                std::io::Write::write_all(&mut peer, b"late").unwrap();
                let (got, _) = conn.read(BytesMut::with_capacity(64)).await;
                let (nothing, _) = conn.read(BytesMut::with_capacity(64)).await;
                drop(said.send(format!("{:?} {:?}", got.ok(), nothing.ok())));
                reset(conn.fd());
                let late = within(Duration::from_secs(5), watch.gone()).await;
                drop(said.send(format!("{} {}", late.is_some(), conn.peer_has_ended())));
                let (conn, peer) = connection().await;
                drop(peer);
                let left = within(Duration::from_secs(5), conn.watch().unwrap().by_state().gone()).await;
                drop(said.send(left.is_some().to_string()));
            })
        },
        &["false false", "Some(4) Some(0)", "true true", "true"],
    );
}

#[test]
fn a_task_that_keeps_the_loop_waiting_shows_in_its_pulse() {
    let pulse = Arc::new(Heartbeats::new(2));
    let start = CoreStart { index: 1, cpu: None, pulse: Arc::clone(&pulse) };
    let busy = Arc::clone(&pulse);
    let core = start_core(start, DriverMode::Epoll, move || {
        Box::pin(async move {
            // The sweeper asks to be woken within a second; this task holds the thread for longer.
            let before = busy.read().nth(1).unwrap();
            sleep(Duration::from_millis(10)).await;
            std::thread::sleep(Duration::from_millis(1_300));
            sleep(Duration::from_millis(10)).await;
            let after = busy.read().nth(1).unwrap();
            assert!(after.beats > before.beats, "{after:?}");
            assert!(after.lag_max >= Duration::from_millis(200), "{after:?}");
        })
    });
    core.unwrap().join().unwrap();
    assert_eq!(pulse.read().next().unwrap().beats, 0, "a core writes its own pulse only");
    assert!(pulse.oldest() >= Duration::from_millis(1_000), "the silent core is the oldest");
}

//! The queue's bounds are exact, and every refusal is counted once.

use super::*;
use crate::encode::sample_span;

fn span(prompt_bytes: usize) -> Box<SpanRecord> {
    Box::new(SpanRecord { prompt: Some("x".repeat(prompt_bytes)), ..sample_span() })
}

/// What a span weighs that holds no text at all.
fn bare() -> usize {
    weigh(&sample_span())
}

#[test]
fn takes_items_up_to_the_bound_and_not_one_more() {
    let queue = Queue::new(3, usize::MAX);
    for _ in 0..3 {
        queue.push(span(0)).unwrap();
    }
    assert_eq!(queue.push(span(0)).unwrap_err().reason, Dropped::QueueFull);
    assert_eq!((queue.items(), queue.bytes()), (3, 3 * bare()));
    assert_eq!(queue.dropped_full.load(Ordering::Relaxed), 1);
}

#[test]
fn takes_bytes_up_to_the_bound_and_not_one_more() {
    let queue = Queue::new(64, 2 * bare() + 1000);
    queue.push(span(600)).unwrap();
    assert_eq!(queue.push(span(401)).unwrap_err().reason, Dropped::QueueFull);
    assert_eq!(queue.bytes(), bare() + 600);
    queue.push(span(400)).unwrap();
    assert_eq!(queue.bytes(), 2 * bare() + 1000);
    assert_eq!(queue.dropped_full.load(Ordering::Relaxed), 1);
}

#[test]
fn texts_give_way_before_spans() {
    let queue = Queue::new(1_000, 100_000);
    let room = |queue: &Queue| 100_000 - queue.bytes();
    let mut whole = 0;
    while queue.push(span(10_000)).unwrap() == Taken::Whole {
        whole += 1;
    }
    assert!((6..=8).contains(&whole), "{whole}");
    // The one that did not fit is there all the same, and so are many more.
    let mut bare_ones = 1;
    while queue.push(span(10_000)).is_ok_and(|taken| taken == Taken::WithoutTexts) {
        bare_ones += 1;
    }
    assert!(bare_ones > 5 && room(&queue) < bare() + 100, "{bare_ones}");
    assert_eq!(queue.without_texts.load(Ordering::Relaxed), bare_ones);
    assert_eq!(queue.dropped_full.load(Ordering::Relaxed), 1);
    let all: Vec<Queued> = std::iter::from_fn(|| queue.pop()).collect();
    let has_lost = |queued: &&Queued| queued.span.tags.get("texts_removed").is_some_and(|why| why == "queue_full");
    assert_eq!(all.iter().filter(has_lost).count() as u64, bare_ones);
    assert!(all.iter().filter(|queued| !has_lost(queued)).all(|queued| queued.span.prompt.is_some()));
}

#[test]
fn bytes_stay_counted_until_they_are_released() {
    let queue = Queue::new(64, bare() + 10);
    queue.push(span(10)).unwrap();
    let taken = queue.pop().unwrap();
    assert_eq!(taken.bytes, bare() + 10);
    assert_eq!(queue.push(span(0)).unwrap_err().reason, Dropped::QueueFull, "the batch being written counts");
    queue.release(taken.bytes);
    queue.push(span(0)).unwrap();
}

#[test]
fn a_closed_queue_takes_nothing() {
    let queue = Queue::new(4, usize::MAX);
    queue.close();
    assert_eq!(queue.push(span(0)).unwrap_err().reason, Dropped::Closed);
    assert_eq!((queue.items(), queue.bytes()), (0, 0));
    assert_eq!(queue.dropped_closed.load(Ordering::Relaxed), 1);
}

#[test]
fn what_comes_after_the_writer_has_left_is_counted() {
    let queue = Queue::new(4, usize::MAX);
    queue.leave();
    assert_eq!(queue.push(span(7)).unwrap_err().reason, Dropped::Closed);
    assert_eq!((queue.items(), queue.bytes()), (0, 0));
    assert_eq!(queue.dropped_closed.load(Ordering::Relaxed), 1);
    assert!(!queue.flush(Duration::from_secs(60)), "nobody is left to answer");
}

#[test]
fn weighs_every_text_of_a_span() {
    let mut heavy = sample_span();
    heavy.prompt = Some("1234".to_owned());
    heavy.response = Some("12345678".to_owned());
    heavy.tags.insert("key".into(), "value".to_owned());
    assert_eq!(weigh(&heavy), bare() + 4 + 8 + PAIR_BYTES + 8);
}

#[test]
fn many_pushers_never_pass_the_byte_bound() {
    let queue = Queue::new(100_000, 40 * bare());
    let taken: usize = std::thread::scope(|scope| {
        let pushers: Vec<_> =
            (0..4).map(|_| scope.spawn(|| (0..500).filter(|_| queue.push(span(0)).is_ok()).count())).collect();
        pushers.into_iter().map(|pusher| pusher.join().unwrap()).sum()
    });
    assert_eq!((taken, queue.items(), queue.bytes()), (40, 40, 40 * bare()));
    assert_eq!(queue.dropped_full.load(Ordering::Relaxed), 2000 - 40);
}

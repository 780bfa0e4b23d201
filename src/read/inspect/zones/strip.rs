//! Takes the operator's markers out of what was read of a request, as they will be taken out of its body.
//!
//! Invariants: a marker that the body does not spell as one string (in a file in base64, behind the last string whose place is
//! noted) stays in both; afterwards every place of the view is one in the text without them. The work is linear in the view.

use std::ops::Range;

use super::super::part::Kept;
use super::super::request::RequestView;
use super::super::zone::Zones;

/// Stretches that a text loses, in order.
struct Losses {
    list: Vec<Range<usize>>,
    /// For each, the bytes lost before it.
    before: Vec<usize>,
}

impl Losses {
    fn of(list: Vec<Range<usize>>) -> Self {
        let before = list.iter().scan(0, |sum, range| Some(std::mem::replace(sum, *sum + range.len())));
        Self { before: before.collect(), list }
    }

    /// Where a place of the text stands without them.
    fn at(&self, place: usize) -> usize {
        let next = self.list.partition_point(|range| range.end <= place);
        let (before, after) = (next.checked_sub(1), self.list.get(next));
        let gone = before.and_then(|at| Some(self.before.get(at)? + self.list.get(at)?.len())).unwrap_or(0);
        let place = after.map_or(place, |range| place.min(range.start));
        place - gone
    }

    fn put(&self, range: &mut Range<usize>) {
        *range = self.at(range.start)..self.at(range.end);
    }
}

/// Takes the markers of `zones` out of the view, where `body` spells them, and notes the bytes that do.
pub(super) fn markers(view: &mut RequestView, body: &[u8], zones: &mut Zones) {
    let mut spotter = view.spotter(body);
    let (mut lost, mut cuts) = (Vec::new(), Vec::new());
    for marker in std::mem::take(&mut zones.markers) {
        let spots = spotter.spots(marker.clone()).unwrap_or_default();
        if let [spot] = &*spots {
            cuts.push(spot.raw.clone());
            lost.push(marker);
        } else {
            zones.markers.push(marker);
        }
    }
    let losses = Losses::of(lost);
    shorten_frame(view, &losses);
    view.places.split(&losses.list, &cuts, |place| losses.at(place));
    let mut text = String::with_capacity(view.text.len());
    let mut done = 0;
    for range in &losses.list {
        text.push_str(view.text.get(done..range.start).unwrap_or_default());
        done = range.end;
    }
    text.push_str(view.text.get(done..).unwrap_or_default());
    view.text = text;
    view.parts.iter_mut().for_each(|part| losses.put(&mut part.range));
    view.files.iter_mut().for_each(|file| losses.put(&mut file.range));
    view.unrecorded.iter_mut().for_each(|range| losses.put(range));
    zones.list.iter_mut().for_each(|zone| losses.put(&mut zone.range));
    zones.list.retain(|zone| !zone.range.is_empty());
    zones.markers.iter_mut().for_each(|range| losses.put(range));
    cuts.sort_by_key(|cut| cut.start);
    zones.cuts = cuts;
}

/// The frame names places of the text as it is recorded, which is without some of its stretches.
fn shorten_frame(view: &mut RequestView, losses: &Losses) {
    let Some(frame) = &mut view.frame else { return };
    let mut kept = Kept::of(&view.unrecorded);
    let recorded = losses.list.iter().filter_map(|range| kept.place(range));
    let recorded = Losses::of(recorded.map(|range| range.start as usize..range.end as usize).collect());
    for text in &mut frame.texts {
        let at = |place: u32| u32::try_from(recorded.at(place as usize)).unwrap_or(place);
        *text = at(text.start)..at(text.end);
    }
}

//! Which pieces of a request's texts are data that somebody handed in, and not words of who speaks to the model.
//!
//! Two voices say so: the form of the text (`heuristic`), and the operator by markers and a header (`operator`). A tool's
//! result is data as a whole and has no zones. Invariants: the work is linear in the text; zones lie inside of one part, in
//! order, and do not overlap; at most [`ZONES_MAX`] are told apart, behind them the rest of each part is one.

mod heuristic;
mod operator;
mod shapes;
mod strip;

use std::time::Instant;

use weir_config::Settings;
use weir_config::settings::ZoneMode;
use weir_inference::PartKind;

use super::part::TextPart;
use super::request::RequestView;
use super::zone::{Zone, Zones};

/// Zones of one request that are told apart.
const ZONES_MAX: usize = 1024;

/// How zones are to be found in one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ZoneAsk {
    /// Who is asked.
    pub mode: ZoneMode,
    /// The value of `X-Service-Data-Boundary`; of several fields, all of them.
    pub header: Option<String>,
    /// Whether detectors are to look at each zone by itself.
    pub scanned: bool,
}

impl ZoneAsk {
    /// As the settings have it; `None` where nobody wants to know.
    pub fn of(settings: &Settings, header: Option<String>) -> Option<Box<Self>> {
        let (zones, defence) = (settings.security_analysis.zones, &settings.boundary_defense);
        let marks = defence.enabled && defence.datamarking.enabled;
        let header = header.filter(|_| zones.mode.is_operator());
        (zones.enabled || marks).then(|| Box::new(Self { mode: zones.mode, header, scanned: zones.enabled }))
    }
}

/// Finds the data in a request. With the `body` it was read from, where that can be changed before it is forwarded, the operator's
/// markers are taken out of the view: what is looked at, recorded and changed from then on is what will be sent.
pub fn find_zones(view: &mut RequestView, ask: &ZoneAsk, body: Option<&[u8]>) {
    find_zones_by(view, ask, body, None);
}

/// The same, as far as there is time: once the deadline has passed, no further data is told by its form.
pub fn find_zones_by(view: &mut RequestView, ask: &ZoneAsk, body: Option<&[u8]>, deadline: Option<Instant>) {
    let mut zones = Zones { scanned: ask.scanned, ..Zones::default() };
    if ask.mode.is_operator() {
        operator::mark(view, ask.header.as_deref(), &mut zones);
        zones.list.sort_by_key(|zone| (zone.part, zone.range.start));
        zones.list = joined(std::mem::take(&mut zones.list));
        if let Some(body) = body.filter(|_| !zones.markers.is_empty()) {
            strip::markers(view, body, &mut zones);
        }
    }
    if ask.mode.is_heuristic() {
        let marked = std::mem::take(&mut zones.list);
        zones.list = by_form(view, marked, deadline);
    }
    view.zones = Some(Box::new(zones));
}

/// The zones that the form of the text tells, and those the operator has marked: where they overlap, the latter alone.
fn by_form(view: &RequestView, marked: Vec<Zone>, deadline: Option<Instant>) -> Vec<Zone> {
    let mut all: Vec<Zone> = Vec::new();
    let mut marked = marked.into_iter().peekable();
    for (at, part) in view.parts.iter().enumerate() {
        let first = all.len();
        while let Some(zone) = marked.next_if(|zone| zone.part <= at) {
            all.push(zone);
        }
        if !is_users(part) {
            continue;
        }
        let text = view.text.get(part.range.clone()).unwrap_or_default();
        let own = all.len();
        let mut next = first;
        for (range, kind) in heuristic::zones(text, ZONES_MAX.saturating_sub(own).max(1), deadline) {
            let range = part.range.start + range.start..part.range.start + range.end;
            while next < own && all.get(next).is_some_and(|zone| zone.range.end <= range.start) {
                next += 1;
            }
            let overlaps = next < own && all.get(next).is_some_and(|zone| zone.range.start < range.end);
            if !overlaps {
                all.push(Zone { part: at, range, kind });
            }
        }
        if own > first {
            all.get_mut(first..).unwrap_or_default().sort_by_key(|zone| zone.range.start);
        }
    }
    all
}

/// Whether its form may tell what is data in it: the application's own words, and the model's, are full of such forms.
fn is_users(part: &TextPart) -> bool {
    part.kind == PartKind::User && !part.is_credential()
}

/// Overlapping zones of the operator are one.
fn joined(zones: Vec<Zone>) -> Vec<Zone> {
    let mut all: Vec<Zone> = Vec::with_capacity(zones.len());
    for zone in zones {
        match all.last_mut() {
            Some(last) if last.part == zone.part && zone.range.start <= last.range.end => {
                last.range.end = last.range.end.max(zone.range.end);
            }
            _ => all.push(zone),
        }
    }
    all
}

#[cfg(test)]
mod tests;

//! The client connections of one core, and which of them have been waiting for a request longest.
//!
//! Invariant: an entry stands in the row of the waiting exactly while its state is `Waiting`; entering, changing state and
//! leaving cost a few stores, no hashing and no search; a place is given away once. Knows descriptors as numbers only.

use std::os::fd::RawFd;
use std::rc::Rc;

use super::connection_caller::ConnectionCaller;
use super::connections::ClientKey;

/// No neighbour.
const NONE: usize = usize::MAX;
/// How far from the front a connection of one certain client is looked for.
const SEARCH_MAX: usize = 256;

/// A place in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot(usize);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Free.
    Free,
    /// A request is on its way.
    Working,
    /// It waits for a request.
    Waiting,
    /// It waited, and we have ended its reading.
    Ended,
}

struct Entry {
    fd: RawFd,
    client: ClientKey,
    /// Whom it was let in as; `None` once it has gone.
    connection_caller: Option<Rc<ConnectionCaller>>,
    /// Its place has not been given to another yet.
    counted: bool,
    state: State,
    /// It is still shaking hands.
    greeting: bool,
    before: usize,
    behind: usize,
}

/// The client connections of one core, in the order in which idle ones are evicted.
pub struct ConnectionTable {
    entries: Vec<Entry>,
    free: Vec<usize>,
    front: usize,
    back: usize,
    waiting: usize,
}

impl ConnectionTable {
    /// An empty table.
    pub fn new() -> Self {
        Self { entries: Vec::new(), free: Vec::new(), front: NONE, back: NONE, waiting: 0 }
    }

    /// A connection has come; it counts as working.
    pub fn enter(&mut self, fd: RawFd, client: ClientKey, connection_caller: Rc<ConnectionCaller>) -> Slot {
        let (connection_caller, state) = (Some(connection_caller), State::Working);
        let entry =
            Entry { fd, client, connection_caller, counted: true, state, greeting: false, before: NONE, behind: NONE };
        if let Some(at) = self.free.pop()
            && let Some(place) = self.entries.get_mut(at)
        {
            *place = entry;
            return Slot(at);
        }
        self.entries.push(entry);
        Slot(self.entries.len() - 1)
    }

    /// It waits for a request from now on. One whose place was given away while a request of it was on its way has no place
    /// to give a second time: its reading has ended, and it goes by itself. `greeting` while it waits for the end of a handshake.
    pub fn wait(&mut self, slot: Slot, greeting: bool) {
        let back = self.back;
        let may_wait = |entry: &&mut Entry| entry.state == State::Working && entry.counted;
        let Some(entry) = self.entries.get_mut(slot.0).filter(may_wait) else { return };
        (entry.state, entry.before, entry.behind, entry.greeting) = (State::Waiting, back, NONE, greeting);
        match self.entries.get_mut(back) {
            Some(last) => last.behind = slot.0,
            None => self.front = slot.0,
        }
        self.back = slot.0;
        self.waiting += 1;
    }

    /// It waits no longer. True when we had ended its reading meanwhile: then nothing more can come from it.
    pub fn work(&mut self, slot: Slot) -> bool {
        self.unlink(slot, State::Working) == Some(State::Ended)
    }

    /// The connection has gone. Gives the client whose place is free now; `None` when the place was given away before.
    pub fn leave(&mut self, slot: Slot) -> Option<ClientKey> {
        self.unlink(slot, State::Free)?;
        self.free.push(slot.0);
        // What it remembers of its caller goes now, not with the next connection here.
        self.entries.get_mut(slot.0)?.connection_caller = None;
        self.entries.get(slot.0).filter(|entry| entry.counted).map(|entry| entry.client)
    }

    /// Takes the one out that has waited longest, of `client` if one is named; its reading is to be ended now, and its place is
    /// free at once.
    pub fn end_longest(&mut self, client: Option<ClientKey>) -> Option<(RawFd, ClientKey)> {
        let mut at = self.front;
        for _ in 0..SEARCH_MAX {
            let entry = self.entries.get(at)?;
            if client.is_none_or(|client| entry.client == client) {
                let ended = (entry.fd, entry.client);
                self.unlink(Slot(at), State::Ended);
                if let Some(entry) = self.entries.get_mut(at) {
                    entry.counted = false;
                }
                return Some(ended);
            }
            at = entry.behind;
        }
        None
    }

    /// As [`ConnectionTable::end_longest`] for all that wait for a request; those that are shaking hands stay.
    pub fn end_idle(&mut self) -> Vec<(RawFd, ClientKey)> {
        let (mut at, mut ended) = (self.front, Vec::new());
        while let Some(entry) = self.entries.get_mut(at) {
            let slot = Slot(at);
            at = entry.behind;
            if !entry.greeting {
                entry.counted = false;
                ended.push((entry.fd, entry.client));
                self.unlink(slot, State::Ended);
            }
        }
        ended
    }

    /// All descriptors.
    pub fn open(&self) -> impl Iterator<Item = RawFd> + '_ {
        self.entries.iter().filter(|entry| entry.state != State::Free).map(|entry| entry.fd)
    }

    /// Those with something under way whose credential has been taken away.
    pub fn revoked(&self) -> impl Iterator<Item = RawFd> + '_ {
        let has_to_end = |entry: &&Entry| {
            entry.state != State::Free
                && entry.connection_caller.as_ref().is_some_and(|connection_caller| connection_caller.has_to_end())
        };
        self.entries.iter().filter(has_to_end).map(|entry| entry.fd)
    }

    /// Whether no connection is left.
    pub fn is_empty(&self) -> bool {
        self.free.len() == self.entries.len()
    }

    /// How many wait.
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// Takes an entry out of the row if it stands there and gives it `next`; its former state, `None` for a free place.
    fn unlink(&mut self, slot: Slot, next: State) -> Option<State> {
        let entry = self.entries.get_mut(slot.0).filter(|entry| entry.state != State::Free)?;
        let (state, before, behind) = (entry.state, entry.before, entry.behind);
        (entry.state, entry.before, entry.behind) = (next, NONE, NONE);
        if state == State::Waiting {
            match self.entries.get_mut(before) {
                Some(neighbour) => neighbour.behind = behind,
                None => self.front = behind,
            }
            match self.entries.get_mut(behind) {
                Some(neighbour) => neighbour.before = before,
                None => self.back = before,
            }
            self.waiting -= 1;
        }
        Some(state)
    }
}

impl Default for ConnectionTable {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use proptest::prelude::*;

    use super::*;

    fn client(number: u8) -> ClientKey {
        IpAddr::V4(Ipv4Addr::new(10, 0, 0, number)).into()
    }

    #[test]
    fn a_client_is_found_behind_others_and_the_order_of_the_others_stays() {
        let mut open_connections = ConnectionTable::new();
        for (fd, number) in [(3, 1), (4, 2), (5, 1), (6, 2)] {
            let slot = open_connections.enter(fd, client(number), Rc::default());
            open_connections.wait(slot, false);
        }
        assert_eq!(open_connections.end_longest(Some(client(2))), Some((4, client(2))));
        assert_eq!(open_connections.end_longest(Some(client(3))), None);
        let rest: Vec<_> = std::iter::from_fn(|| open_connections.end_longest(None)).map(|(fd, _)| fd).collect();
        assert_eq!(rest, [3, 5, 6]);
    }

    #[test]
    fn a_place_is_given_away_once_though_its_connection_still_served_a_request() {
        let mut open_connections = ConnectionTable::new();
        let slot = open_connections.enter(3, client(1), Rc::default());
        open_connections.wait(slot, false);
        assert_eq!(open_connections.end_longest(None), Some((3, client(1))));
        assert!(open_connections.work(slot), "bytes had come before its reading ended");
        open_connections.wait(slot, false);
        assert_eq!(open_connections.end_longest(None), None);
        assert_eq!(open_connections.leave(slot), None);
        assert!(open_connections.is_empty());
    }

    #[test]
    fn a_drain_ends_who_waits_for_a_request_and_not_who_is_shaking_hands() {
        let mut open_connections = ConnectionTable::new();
        let slots: Vec<_> = (3..7).map(|fd| open_connections.enter(fd, client(1), Rc::default())).collect();
        for (at, slot) in slots.iter().enumerate() {
            open_connections.wait(*slot, at % 2 == 0);
        }
        assert_eq!(open_connections.end_idle(), [(4, client(1)), (6, client(1))]);
        assert_eq!(open_connections.waiting(), 2);
        open_connections.work(slots[0]);
        open_connections.wait(slots[0], false);
        assert_eq!(open_connections.end_idle(), [(3, client(1))], "its handshake is over");
        assert_eq!(open_connections.end_longest(None), Some((5, client(1))), "but it may make room");
    }

    #[derive(Debug, Clone, Copy)]
    enum Step {
        Enter,
        Wait(usize),
        Work(usize),
        Leave(usize),
        End,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            Just(Step::Enter),
            (0..8usize).prop_map(Step::Wait),
            (0..8usize).prop_map(Step::Work),
            (0..8usize).prop_map(Step::Leave),
            Just(Step::End),
        ];
        proptest::collection::vec(step, 0..200)
    }

    proptest! {
        /// Against the plain way: a list of who is there and a queue of who waits.
        #[test]
        fn it_keeps_the_order_of_waiting(steps in steps()) {
            let mut open_connections = ConnectionTable::new();
            let mut there: Vec<(Slot, RawFd)> = Vec::new();
            let mut queue: Vec<RawFd> = Vec::new();
            let mut ended: Vec<RawFd> = Vec::new();
            let mut gone: Vec<RawFd> = Vec::new();
            let mut next_fd = 10;
            for step in steps {
                let pick = |at: usize, there: &[(Slot, RawFd)]| there.get(at).copied();
                match step {
                    Step::Enter => {
                        there.push((open_connections.enter(next_fd, client(1), Rc::default()), next_fd));
                        next_fd += 1;
                    }
                    Step::Wait(at) => if let Some((slot, fd)) = pick(at, &there) {
                        open_connections.wait(slot, false);
                        if !queue.contains(&fd) && !gone.contains(&fd) {
                            queue.push(fd);
                        }
                    }
                    Step::Work(at) => if let Some((slot, fd)) = pick(at, &there) {
                        prop_assert_eq!(open_connections.work(slot), ended.contains(&fd));
                        queue.retain(|other| *other != fd);
                        ended.retain(|other| *other != fd);
                    }
                    Step::Leave(at) => if let Some((slot, fd)) = pick(at, &there) {
                        let given_away = gone.contains(&fd);
                        prop_assert_eq!(open_connections.leave(slot).is_none(), given_away, "a place is free once");
                        there.remove(at);
                        queue.retain(|other| *other != fd);
                        ended.retain(|other| *other != fd);
                    }
                    Step::End => {
                        let first = (!queue.is_empty()).then(|| queue.remove(0));
                        prop_assert_eq!(open_connections.end_longest(None).map(|(fd, _)| fd), first);
                        ended.extend(first);
                        gone.extend(first);
                    }
                }
                prop_assert_eq!(open_connections.waiting(), queue.len());
                prop_assert_eq!(open_connections.is_empty(), there.is_empty());
                let mut open: Vec<_> = open_connections.open().collect();
                open.sort_unstable();
                prop_assert_eq!(open, there.iter().map(|(_, fd)| *fd).collect::<Vec<_>>());
            }
        }
    }
}

//! Spend as it is kept, and how what several processes spend adds up in one file.

use std::cmp::Ordering;
use std::collections::HashMap;

use weir_config::settings::Window;
use weir_config::vocab::TenantId;

/// One window of one agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpendRow {
    /// Whose.
    pub tenant: TenantId,
    /// Which agent's.
    pub agent: String,
    /// Which window.
    pub window: Window,
    /// The period's first second, since 1970.
    pub period_start_s: i64,
    /// The second since which this process counts it; of a row that was read, when it was read, and
    /// behind any deletion: rows that are there were written since.
    pub since_s: i64,
    /// Nanodollars spent in it.
    pub spent_nano_usd: u64,
}

/// One agent's window.
type Account = (TenantId, String, Window);

/// What the file is known to hold of what was spent: what this process has written down, and what it has counted in of what others have.
/// Processes say how much they count in all; what is written is the difference, so that what several of them spend adds up, and saying
/// the same again changes nothing.
#[derive(Debug, Default)]
pub(crate) struct Ledger(HashMap<Account, Entry>);

/// Of the account's latest period.
#[derive(Debug, Clone, Copy)]
struct Entry {
    period_start_s: i64,
    nano_usd: u64,
    /// The second in which it was written or read.
    at_s: i64,
}

impl Ledger {
    /// These rows with what is new in each: what is to be added to what the file holds.
    pub(crate) fn news(&self, rows: &[SpendRow]) -> Vec<SpendRow> {
        let more = |row: &SpendRow| row.spent_nano_usd.saturating_sub(self.of(row));
        rows.iter().map(|row| SpendRow { spent_nano_usd: more(row), ..row.clone() }).collect()
    }

    /// From now on the file holds these rows, but for those that count since before their tenant's deletion, whose second `left_out`
    /// says: with it has gone what had been written before.
    pub(crate) fn written(&mut self, rows: &[SpendRow], left_out: &[(TenantId, i64)], now_s: i64) {
        let deleted_s = |tenant| left_out.iter().find(|(whose, _)| *whose == tenant).map(|(_, deleted_s)| *deleted_s);
        for row in rows {
            if deleted_s(row.tenant).is_some_and(|deleted_s| row.since_s <= deleted_s) {
                self.0.remove(&account(row));
            } else {
                self.holds(row, now_s);
            }
        }
        if !left_out.is_empty() {
            self.0.retain(|(tenant, ..), entry| deleted_s(*tenant).is_none_or(|deleted_s| entry.at_s > deleted_s));
        }
    }

    /// How much more the file holds by these rows of it than was known; none of it is new from now on.
    pub(crate) fn count_in(&mut self, rows: Vec<SpendRow>) -> Vec<SpendRow> {
        let mut more = Vec::new();
        for row in rows {
            let grown = row.spent_nano_usd.saturating_sub(self.of(&row));
            if grown > 0 {
                self.holds(&row, row.since_s);
                more.push(SpendRow { spent_nano_usd: grown, ..row });
            }
        }
        more
    }

    /// Everything that the file holds, at a start.
    pub(crate) fn begin(&mut self, rows: &[SpendRow]) {
        self.0.clear();
        rows.iter().for_each(|row| self.holds(row, row.since_s));
    }

    /// Nothing of the tenant stands in the file any more.
    pub(crate) fn forget(&mut self, tenant: TenantId) {
        self.0.retain(|(whose, ..), _| *whose != tenant);
    }

    /// What the file holds of the row's period; of one that is over, all that could come.
    fn of(&self, row: &SpendRow) -> u64 {
        let entry = self.0.get(&account(row));
        entry.map_or(0, |entry| match entry.period_start_s.cmp(&row.period_start_s) {
            Ordering::Less => 0,
            Ordering::Equal => entry.nano_usd,
            Ordering::Greater => u64::MAX,
        })
    }

    fn holds(&mut self, row: &SpendRow, at_s: i64) {
        let known = self.of(row);
        if known == u64::MAX {
            return;
        }
        let nano_usd = row.spent_nano_usd.max(known);
        let entry = Entry { period_start_s: row.period_start_s, nano_usd, at_s };
        self.0.insert(account(row), entry);
    }
}

fn account(row: &SpendRow) -> Account {
    (row.tenant, row.agent.clone(), row.window)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn row(period_start_s: i64, spent_nano_usd: u64) -> SpendRow {
        let (tenant, agent) = (TenantId::from_bytes([1; 16]), "agent".to_owned());
        SpendRow { tenant, agent, window: Window::Daily, period_start_s, since_s: 0, spent_nano_usd }
    }

    fn amounts(rows: &[SpendRow]) -> Vec<u64> {
        rows.iter().map(|row| row.spent_nano_usd).collect()
    }

    /// One process: what it counts, and what it knows of the file.
    #[derive(Default)]
    struct Process {
        counts: u64,
        own: u64,
        ledger: Ledger,
    }

    proptest! {
        /// Whatever several processes do in whichever order, the file holds in the end what they have spent together, and each of them
        /// counts it.
        #[test]
        fn what_several_processes_spend_adds_up(steps in proptest::collection::vec((0..3_usize, 0..3_u8, 0..1_000_u64), 1..60)) {
            let mut file = 0;
            let mut all = [(); 3].map(|()| Process::default());
            let write = |process: &mut Process, file: &mut u64| {
                let rows = [row(0, process.counts)];
                *file += amounts(&process.ledger.news(&rows))[0];
                process.ledger.written(&rows, &[], 1);
            };
            let read = |process: &mut Process, file: u64| {
                process.counts += amounts(&process.ledger.count_in(vec![row(0, file)])).iter().sum::<u64>();
            };
            for (of, step, amount) in steps {
                let process = &mut all[of];
                match step {
                    0 => {
                        process.counts += amount;
                        process.own += amount;
                    }
                    1 => write(process, &mut file),
                    _ => read(process, file),
                }
            }
            all.iter_mut().for_each(|process| write(process, &mut file));
            all.iter_mut().for_each(|process| read(process, file));
            let spent: u64 = all.iter().map(|process| process.own).sum();
            prop_assert_eq!(file, spent);
            prop_assert!(all.iter().all(|process| process.counts == spent));
        }
    }

    #[test]
    fn a_period_that_is_over_brings_nothing_and_a_deleted_tenant_begins_anew() {
        let mut ledger = Ledger::default();
        ledger.begin(&[row(10, 5)]);
        assert_eq!(amounts(&ledger.news(&[row(10, 7), row(0, 99), row(20, 3)])), [2, 0, 3]);
        assert_eq!(amounts(&ledger.count_in(vec![row(10, 9), row(0, 99), row(20, 3)])), [4, 3]);
        assert_eq!(amounts(&ledger.news(&[row(10, 10), row(20, 3)])), [0, 0]);
        ledger.forget(row(0, 0).tenant);
        assert_eq!(amounts(&ledger.news(&[row(20, 1)])), [1]);
    }

    #[test]
    fn what_began_before_a_deletion_by_another_process_is_gone_and_what_came_later_stays() {
        let of = |agent: &str, since_s, spent| SpendRow { agent: agent.to_owned(), since_s, ..row(20, spent) };
        let mut ledger = Ledger::default();
        ledger.written(&[of("old", 5, 7), of("idle", 5, 7)], &[], 6);
        let rows = [of("old", 5, 8), of("new", 11, 3)];
        ledger.written(&rows, &[(rows[0].tenant, 10)], 12);
        let anew = [of("old", 13, 1), of("idle", 13, 2), of("new", 11, 4)];
        assert_eq!(amounts(&ledger.news(&anew)), [1, 2, 1]);
    }
}

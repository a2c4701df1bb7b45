//! A ledger of files that are not stored as they were scanned, with the reasons.
//!
//! Only the thread that takes decisions adds entries, so their order does not depend on the number of threads.

use parking_lot::Mutex;
use std::collections::BTreeMap;

use crate::error::Skipped;
use kiln_tree::NodeId;

/// Files that a build leaves out, or stores although they have changed.
#[derive(Default)]
pub(crate) struct Ledger(Mutex<Entries>);

#[derive(Default)]
struct Entries {
    /// Inputs that are left out, in the order in which they were added.
    left_out: Vec<Skipped>,
    /// Files that have changed, in the order in which they were added.
    changed: Vec<(NodeId, Skipped)>,
    /// Files that differ from the digest that an image stores for them, in the order in which they were added.
    damaged: Vec<(NodeId, Skipped)>,
}

/// Entries of a finished build.
pub(crate) struct ClosedLedger {
    /// Inputs that are left out.
    pub skipped: Vec<Skipped>,
    /// Files that have changed and are stored, sorted by path.
    pub changed: Vec<Skipped>,
    /// Files that differ from their stored digest and are stored.
    pub damaged: Vec<Skipped>,
}

impl Ledger {
    /// Adds an input that is left out.
    pub(crate) fn leave_out(&self, one: Skipped) {
        self.0.lock().left_out.push(one);
    }

    /// Adds a file that has changed. It may still be left out later.
    pub(crate) fn change(&self, node: NodeId, one: Skipped) {
        self.0.lock().changed.push((node, one));
    }

    /// Adds a file that differs from the digest that an image stores for it. It may still be left out later.
    pub(crate) fn damage(&self, node: NodeId, one: Skipped) {
        self.0.lock().damaged.push((node, one));
    }

    /// Closes the ledger at the end of a build. `is_stored` tells if a file is in the image.
    pub(crate) fn close(self, is_stored: impl Fn(NodeId) -> bool) -> ClosedLedger {
        let Entries { left_out, changed, damaged } = self.0.into_inner();
        let changed = changed.into_iter().filter(|(node, one)| one.error.is_change() && is_stored(*node));
        // Of several entries for a file the last one counts.
        let by_path: BTreeMap<_, _> = changed.map(|(_, one)| (one.path, one.error)).collect();
        let changed = by_path.into_iter().map(|(path, error)| Skipped { path, error }).collect();
        let damaged = damaged.into_iter().filter(|(node, _)| is_stored(*node)).map(|(_, one)| one).collect();
        let mut skipped = left_out;
        skipped.sort_by(|a, b| a.path.cmp(&b.path));
        // Some inputs are looked at more than once.
        skipped.dedup_by(|later, first| later.path == first.path);
        ClosedLedger { skipped, changed, damaged }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::BuildError;
    use kiln_tree::ContentError;

    fn changed(path: &str, how: &'static str) -> Skipped {
        let path = path.as_bytes().to_vec();
        Skipped { error: BuildError::Read { path: path.clone(), source: ContentError::Changed(how) }, path }
    }

    #[test]
    fn entries_are_sorted_and_the_last_change_of_a_stored_file_counts() {
        let ledger = Ledger::default();
        ledger.leave_out(changed("late", "second"));
        ledger.leave_out(changed("early", "second"));
        ledger.change(NodeId(4), changed("four", "first"));
        ledger.change(NodeId(3), changed("three", "second"));
        ledger.change(NodeId(4), changed("four", "second"));
        ledger.change(NodeId(5), changed("five", "second"));
        let ClosedLedger { skipped, changed, .. } = ledger.close(|node| node != NodeId(5));
        let paths = |list: &[Skipped]| list.iter().map(|one| one.error.to_string()).collect::<Vec<_>>();
        let told = |path: &str| format!("{path}: changed while the image was being built (second)");
        assert_eq!(paths(&skipped), [told("early"), told("late")]);
        assert_eq!(paths(&changed), [told("four"), told("three")]);
    }
}

//! Leave to send one request: its number, and what it took of each gate.

use std::ops::Range;

use super::gate::{Gate, Passage, Taken, Use};
use super::gates::GateId;
use super::meter::Receipt;
use super::order::{Arrival, Turn};
use crate::cost::Cost;
use crate::time::Time;

/// The number of a grant that has not ended.
type GrantId = usize;

/// Leave to send one request. To be released or given back in the end.
#[derive(Debug)]
#[must_use]
pub(crate) struct Grant {
    /// Its place, if it has to ask again.
    pub(crate) arrival: Arrival,
    id: GrantId,
}

/// All grants that have not ended. Who comes later uses the memory of those who have.
#[derive(Debug, Default)]
pub(super) struct Grants {
    all: Vec<Passed>,
    ended: Vec<GrantId>,
}

/// What is known of a grant until it ends.
#[derive(Debug, Default)]
struct Passed {
    gates: Vec<(GateId, Passage, Range<usize>)>,
    receipts: Vec<Receipt>,
    turn: Option<Turn>,
    usage: Use,
}

impl Grants {
    /// A grant that passes nothing yet.
    #[inline]
    pub(super) fn begin(&mut self, arrival: Arrival, usage: Use) -> Grant {
        let id = self.ended.pop().unwrap_or_else(|| {
            self.all.push(Passed::default());
            self.all.len() - 1
        });
        self.all[id].usage = usage;
        Grant { arrival, id }
    }

    /// It passes a gate.
    pub(super) fn pass(&mut self, grant: &Grant, id: GateId, gate: &mut Gate, cost: &Cost, due: Time, now: Time) {
        let Passed { gates, receipts, usage, .. } = &mut self.all[grant.id];
        let first = receipts.len();
        let passage = gate.take(cost, *usage, due, now, receipts);
        gates.push((id, passage, first..receipts.len()));
    }

    pub(super) fn set_turn(&mut self, grant: &Grant, turn: Turn) {
        self.all[grant.id].turn = Some(turn);
    }

    pub(super) fn usage(&self, grant: &Grant) -> Use {
        self.all[grant.id].usage
    }

    /// How many gates it passed.
    pub(super) fn gates(&self, grant: &Grant) -> usize {
        self.all[grant.id].gates.len()
    }

    pub(super) fn gates_of(&self, grant: &Grant) -> impl Iterator<Item = GateId> {
        self.all[grant.id].gates.iter().map(|(gate, ..)| *gate)
    }

    /// One of the gates that it passed, and what it took there.
    pub(super) fn at(&mut self, grant: &Grant, place: usize) -> (GateId, Taken<'_>) {
        let Passed { gates, receipts, usage, .. } = &mut self.all[grant.id];
        let (gate, passage, range) = &mut gates[place];
        (*gate, Taken { usage: *usage, passage, receipts: &mut receipts[range.clone()] })
    }

    pub(super) fn take_turn(&mut self, grant: &Grant) -> Option<Turn> {
        self.all[grant.id].turn.take()
    }

    #[expect(clippy::needless_pass_by_value, reason = "with its end it is gone")]
    pub(super) fn end(&mut self, grant: Grant) {
        let Grant { id, .. } = grant;
        let passed = &mut self.all[id];
        passed.gates.clear();
        passed.receipts.clear();
        passed.turn = None;
        self.ended.push(id);
    }
}

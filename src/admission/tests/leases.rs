//! Units that a store lends: the core asks, a store that is played here answers.

use super::effect::Loan;
use super::*;

/// A store with one number of units for everybody, and a core that borrows from it.
struct Lent {
    core: Admission,
    now: u64,
}

impl Lent {
    fn new(limits: &[&str]) -> Self {
        let rules = limits
            .iter()
            .map(|limits| Rule { limits: limits.parse().unwrap(), shared: true, ..Rule::default() })
            .collect();
        Self { core: Admission::new(Settings { rules, ..Settings::default() }), now: 0 }
    }

    fn ask(&mut self, rules: &[usize]) -> Result<Asked, Refused> {
        let gates = rules.iter().map(|rule| GateName { rule: *rule, key: Key::new(HOST) }).collect();
        let asked = ask(&mut self.core, Want { gates, deadline: Some(at(FOREVER)), ..host() }, at(self.now));
        self.core.state.assert_sound();
        asked
    }

    fn waiting(&mut self, rules: &[usize]) -> AskId {
        match self.ask(rules) {
            Ok(Asked::Waiting(id)) => id,
            other => panic!("not made to wait: {other:?}"),
        }
    }

    /// What the store is asked for: of which rule, and how much.
    fn wanted(&mut self) -> Vec<(Loan, u64)> {
        let effects = std::iter::from_fn(|| self.core.pop_effect());
        let borrow = effects.filter_map(|effect| match effect {
            Effect::Borrow { of, units, .. } => Some((of, units)),
            Effect::Return { .. } => None,
        });
        borrow.collect()
    }

    fn returned(&mut self) -> u64 {
        let effects = std::iter::from_fn(|| self.core.pop_effect());
        effects.map(|effect| if let Effect::Return { units, .. } = effect { units } else { 0 }).sum()
    }

    fn lend(&mut self, of: Loan, units: u64, until: u64) {
        self.core.event(Event::Borrowed { of, units, until: at(until) }, at(self.now));
        self.core.state.assert_sound();
    }

    fn granted(&mut self) -> Vec<AskId> {
        let decided = std::iter::from_fn(|| self.core.pop_decided()).collect::<Vec<_>>();
        decided.into_iter().filter(|id| self.core.collect(*id).unwrap().map(std::mem::forget).is_ok()).collect()
    }
}

#[test]
fn what_is_missing_is_borrowed_once_and_spent_by_all_who_wait() {
    let mut lent = Lent::new(&["10/s"]);
    let waiting = [lent.waiting(&[0]), lent.waiting(&[0]), lent.waiting(&[0])];
    let wanted = lent.wanted();
    assert_eq!(wanted.iter().map(|(_, units)| *units).collect::<Vec<_>>(), [1], "asked once");
    lent.lend(wanted[0].0.clone(), 2, 50);
    assert_eq!(lent.granted(), waiting[..2]);
    let again = lent.wanted();
    assert_eq!(again.len(), 1, "and again for the next");
    lent.lend(again[0].0.clone(), 5, 50);
    assert_eq!(lent.granted(), waiting[2..]);
    assert!(matches!(lent.ask(&[0]), Ok(Asked::Granted(_))), "from what was lent");
    assert_eq!(lent.core.state.waiting, 0);
}

#[test]
fn a_denial_is_believed_until_its_time_and_then_the_store_is_asked_again() {
    let mut lent = Lent::new(&["10/s"]);
    let id = lent.waiting(&[0]);
    let (of, _) = lent.wanted().remove(0);
    lent.core.event(Event::Denied { of: of.clone(), until: at(300) }, at(10));
    assert_eq!(lent.core.next(), Some(at(300)));
    lent.now = 100;
    let second = lent.waiting(&[0]);
    assert!(lent.wanted().is_empty(), "it is no use before");
    lent.core.advance(at(300));
    assert_eq!(lent.wanted(), [(of.clone(), 1)]);
    lent.now = 305;
    lent.lend(of, 2, 400);
    assert_eq!(lent.granted(), [id, second]);
}

#[test]
fn what_is_not_spent_in_time_is_returned() {
    let mut lent = Lent::new(&["10/s"]);
    let id = lent.waiting(&[0]);
    let (of, _) = lent.wanted().remove(0);
    lent.lend(of, 10, 50);
    assert_eq!(lent.granted(), [id]);
    assert_eq!(lent.core.next(), Some(at(50)), "the loan's end is an instant of the core's");
    lent.core.advance(at(50));
    assert_eq!(lent.returned(), 9);
    lent.now = 51;
    lent.waiting(&[0]);
    assert_eq!(lent.wanted().len(), 1);
}

#[test]
fn a_request_that_needs_two_loans_takes_both_or_none() {
    let mut lent = Lent::new(&["10/s", "5/s"]);
    let both = lent.waiting(&[0, 1]);
    let wanted = lent.wanted();
    assert_eq!(wanted.len(), 2, "both are asked for at once");
    lent.lend(wanted[0].0.clone(), 1, 1_000);
    assert!(lent.granted().is_empty());
    assert!(lent.core.snapshot(at(0)).gates.iter().any(|gate| gate.quotas[0].left == 1), "and nothing is taken");
    lent.lend(wanted[1].0.clone(), 1, 1_000);
    assert_eq!(lent.granted(), [both]);
}

#[test]
fn what_is_settled_beyond_the_loan_is_paid_by_the_next_and_what_comes_back_is_spent_again() {
    let mut lent = Lent::new(&["10/s"]);
    lent.waiting(&[0]);
    let (of, _) = lent.wanted().remove(0);
    lent.lend(of.clone(), 3, 1_000);
    lent.core.pop_decided();
    let (Ok(Asked::Granted(costly)), Ok(Asked::Granted(unsent))) = (lent.ask(&[0]), lent.ask(&[0])) else {
        panic!("not from what was lent")
    };
    lent.core.give_back(unsent, at(0));
    let Ok(Asked::Granted(late)) = lent.ask(&[0]) else { panic!("what came back is not there") };
    assert!(lent.core.send(&costly, at(0)));
    lent.core.settle(&costly, &Unit::REQUESTS, 5, at(0));
    let id = lent.waiting(&[0]);
    assert_eq!(lent.wanted(), [(of.clone(), 5)], "one, and the four that are owed");
    assert!(!lent.core.send(&late, at(1_000)), "a loan that has lapsed is not to be spent");
    lent.now = 1_000;
    lent.lend(of, 5, 2_000);
    assert_eq!(lent.granted(), [id]);
    assert_eq!(lent.core.snapshot(at(1_000)).gates[0].quotas[0].left, 0, "the rest is paid");
}

#[test]
fn a_loan_for_a_quota_that_is_gone_goes_back() {
    let mut lent = Lent::new(&["10/s"]);
    lent.waiting(&[0]);
    let (of, _) = lent.wanted().remove(0);
    lent.core.set_limits(0, "10 tokens/s".parse().unwrap(), at(0));
    assert_eq!(lent.granted().len(), 1, "it costs no tokens");
    lent.lend(of, 7, 1_000);
    assert_eq!(lent.returned(), 7);
}

#[test]
fn a_loan_for_a_gate_that_is_gone_is_not_spent_by_another_of_its_name() {
    let mut lent = Lent::new(&["100 tokens/s"]);
    let tokens = Want { cost: Cost::from(0).and(Unit::TOKENS, 50), deadline: Some(at(FOREVER)), ..host() };
    let Ok(Asked::Waiting(id)) = ask(&mut lent.core, tokens, at(0)) else { panic!("not made to wait") };
    let (of, _) = lent.wanted().remove(0);
    lent.core.leave(id, at(0));
    lent.core.set_limits(0, "2/s".parse().unwrap(), at(1));
    for key in ["a", "b", "c", "d", "e", "f", "g", "h"] {
        let _ = ask(&mut lent.core, Want { gates: vec![name(key)], ..host() }, at(2));
    }
    assert!(lent.core.state.gates.find(&name(HOST)).is_none(), "it has been dropped");
    lent.now = 3;
    let waiting = [(); 20].map(|()| lent.waiting(&[0]));
    lent.wanted();
    lent.lend(of, 50, 1_000);
    assert_eq!((lent.granted().len(), lent.returned(), waiting.len()), (0, 50, 20), "tokens are no requests");
}

#[test]
fn what_is_left_of_a_loan_goes_back_with_its_quota() {
    let mut lent = Lent::new(&["100/s"]);
    lent.waiting(&[0]);
    let (of, _) = lent.wanted().remove(0);
    lent.lend(of, 10, 1_000);
    lent.core.set_limits(0, "10 tokens/s".parse().unwrap(), at(0));
    lent.core.advance(at(1));
    assert_eq!(lent.returned(), 9);
}

//! In flight.

/// How many may be in flight at once, and how many are.
#[derive(Debug)]
pub(super) struct Slots {
    most: Option<usize>,
    used: usize,
}

impl Slots {
    pub(super) fn new(most: Option<usize>) -> Self {
        Self { most, used: 0 }
    }

    pub(super) fn most(&self) -> Option<usize> {
        self.most
    }

    pub(super) fn is_free(&self) -> bool {
        self.most.is_none_or(|most| self.used < most)
    }

    /// Another number from now on. If more are in use, nobody is cut off, and nobody new goes until they are fewer.
    pub(super) fn retune(&mut self, most: Option<usize>) {
        self.most = most;
    }

    #[cfg(test)]
    pub(super) fn used(&self) -> usize {
        self.used
    }

    pub(super) fn take(&mut self) {
        self.used += 1;
    }

    pub(super) fn release(&mut self) {
        self.used -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_free_until_all_are_taken() {
        let mut slots = Slots::new(Some(2));
        slots.take();
        assert!(slots.is_free());
        slots.take();
        assert!(!slots.is_free());
        slots.release();
        assert!(slots.is_free());
        assert!(Slots::new(None).is_free());
    }
}

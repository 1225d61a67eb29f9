//! How sequence numbers are dealt to splits: in runs, so that a split draws most of its random numbers in a row.

/// Sequence numbers in a row that one split gets.
const RUN: u64 = 256;

/// The part of a generator's sequence numbers that one split has: every `of`th run, from run `index`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Deal {
    pub(super) index: u64,
    pub(super) of: u64,
}

impl Deal {
    /// The id of the split. It says how many there are: with another number the splits would be others.
    pub(super) fn id(&self) -> String {
        format!("{}-of-{}", self.index, self.of)
    }

    /// The deal of an id, if it is one.
    pub(super) fn parse(id: &str) -> Option<Self> {
        let (index, of) = id.split_once("-of-")?;
        let deal = Self { index: index.parse().ok()?, of: of.parse().ok()? };
        (deal.index < deal.of && deal.id() == id).then_some(deal)
    }

    /// The first sequence number.
    pub(super) fn first(&self) -> u64 {
        self.index * RUN
    }

    /// Whether a sequence number is dealt to this split.
    pub(super) fn has(&self, sequence: u64) -> bool {
        (sequence / RUN) % self.of == self.index
    }

    /// The end of the run in which a sequence number lies: the numbers up to it are this split's.
    pub(super) fn run_end(&self, sequence: u64) -> u64 {
        if self.of == 1 { u64::MAX } else { (sequence / RUN + 1).saturating_mul(RUN) }
    }

    /// The number from which this split goes on when it has had all below `sequence`.
    pub(super) fn from(&self, sequence: u64) -> u64 {
        if self.has(sequence) {
            return sequence;
        }
        let run = sequence / RUN;
        let skipped = (self.index + self.of - run % self.of) % self.of;
        (run + skipped).saturating_mul(RUN)
    }

    /// How many sequence numbers below `end` are dealt to this split.
    pub(super) fn count_below(&self, end: u64) -> u64 {
        let round = RUN.saturating_mul(self.of);
        (end / round) * RUN + (end % round).saturating_sub(self.first()).min(RUN)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn each_number_is_dealt_once() {
        for of in [1, 2, 3, 7] {
            let deals: Vec<_> = (0..of).map(|index| Deal { index, of }).collect();
            for sequence in 0..10_000 {
                assert_eq!(deals.iter().filter(|deal| deal.has(sequence)).count(), 1);
            }
            for deal in &deals {
                let mine: Vec<_> = (0..10_000).filter(|sequence| deal.has(*sequence)).collect();
                assert_eq!(deal.first(), mine[0]);
                for end in [0, 1, 255, 256, 257, 1_024, 9_999, 10_000] {
                    let below = mine.iter().filter(|sequence| **sequence < end).count();
                    assert_eq!(deal.count_below(end), below as u64, "{deal:?} below {end}");
                }
                for sequence in 0..8_000 {
                    assert_eq!(deal.from(sequence), *mine.iter().find(|mine| **mine >= sequence).unwrap());
                }
            }
        }
    }

    #[test]
    fn ids_are_read_back() {
        let deal = Deal { index: 2, of: 4 };
        assert_eq!(Deal::parse(&deal.id()), Some(deal));
        for wrong in ["4-of-4", "0-of-0", "00-of-1", "1", "a-of-b", "+1-of-4"] {
            assert_eq!(Deal::parse(wrong), None, "{wrong}");
        }
    }
}

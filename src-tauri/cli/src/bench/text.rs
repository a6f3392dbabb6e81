//! Words to measure with: common ones, the same every time.

const WORDS: [&str; 32] = [
    "the", "water", "under", "old", "bridge", "was", "clear", "and", "cold", "people", "came",
    "from", "every", "town", "to", "see", "it", "before", "winter", "some", "of", "them", "stayed",
    "for", "many", "years", "with", "their", "children", "near", "river", "light",
];

/// An endless row of words; equal seeds give equal words.
#[derive(Debug)]
pub(super) struct Text {
    state: u64,
}

impl Text {
    pub(super) fn new(seed: u64) -> Text {
        Text {
            state: seed.wrapping_mul(2).wrapping_add(1),
        }
    }

    pub(super) fn words(&mut self, count: usize) -> String {
        (0..count)
            .map(|_| self.word())
            .collect::<Vec<_>>()
            .join(" ")
    }

    fn word(&mut self) -> &'static str {
        WORDS[(self.next() % WORDS.len() as u64) as usize]
    }

    /// Any bits; xorshift64 (Marsaglia, "Xorshift RNGs", 2003).
    pub(super) fn next(&mut self) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state
    }
}

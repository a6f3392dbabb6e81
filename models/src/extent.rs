//! How far a text is tokenized.

/// Bounds that are looked at between two pieces of a text: a number of tokens, and whether it is still wanted.
pub struct Extent<'a> {
    tokens_left: usize,
    is_used_up: bool,
    go_on: Option<&'a mut dyn FnMut() -> bool>,
}

impl<'a> Extent<'a> {
    /// All of it, however long that takes.
    pub fn whole() -> Extent<'static> {
        Extent {
            tokens_left: usize::MAX,
            is_used_up: false,
            go_on: None,
        }
    }

    /// At most so many tokens, for as long as `go_on` says so.
    pub fn new(most_tokens: usize, go_on: &'a mut dyn FnMut() -> bool) -> Extent<'a> {
        Extent {
            tokens_left: most_tokens,
            is_used_up: false,
            go_on: Some(go_on),
        }
    }

    /// Whether there were more tokens than it holds. What came of them is a beginning.
    pub fn is_used_up(&self) -> bool {
        self.is_used_up
    }

    /// How many more tokens it holds.
    pub fn tokens_left(&self) -> usize {
        self.tokens_left
    }

    /// Counts tokens that were added. False once there are too many.
    pub(crate) fn take(&mut self, num_tokens: usize) -> bool {
        self.is_used_up |= num_tokens > self.tokens_left;
        self.tokens_left = self.tokens_left.saturating_sub(num_tokens);
        !self.is_used_up
    }

    /// Whether it is still wanted.
    pub(crate) fn is_wanted(&mut self) -> bool {
        self.go_on.as_mut().is_none_or(|go_on| go_on())
    }
}

//! Bounds on tokenizing a text.

/// Bounds that are checked between two pieces of a text: a maximum number of tokens, and an interrupt.
pub struct Extent<'a> {
    tokens_left: usize,
    is_used_up: bool,
    go_on: Option<&'a mut dyn FnMut() -> bool>,
}

impl<'a> Extent<'a> {
    /// No bounds.
    pub fn whole() -> Extent<'static> {
        Extent {
            tokens_left: usize::MAX,
            is_used_up: false,
            go_on: None,
        }
    }

    /// At most `most_tokens` tokens, and only while `go_on` returns true.
    pub fn new(most_tokens: usize, go_on: &'a mut dyn FnMut() -> bool) -> Extent<'a> {
        Extent {
            tokens_left: most_tokens,
            is_used_up: false,
            go_on: Some(go_on),
        }
    }

    /// Whether the text had more tokens than the maximum; the tokens are then only a prefix.
    pub fn is_used_up(&self) -> bool {
        self.is_used_up
    }

    /// Number of tokens left until the maximum.
    pub fn tokens_left(&self) -> usize {
        self.tokens_left
    }

    /// Counts tokens that were added. False once they exceed the maximum.
    pub(crate) fn take(&mut self, num_tokens: usize) -> bool {
        self.is_used_up |= num_tokens > self.tokens_left;
        self.tokens_left = self.tokens_left.saturating_sub(num_tokens);
        !self.is_used_up
    }

    /// False when tokenizing is to be interrupted.
    pub(crate) fn is_wanted(&mut self) -> bool {
        self.go_on.as_mut().is_none_or(|go_on| go_on())
    }
}

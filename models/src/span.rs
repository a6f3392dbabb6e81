//! The spans of a prompt, template and content, to token ids.

use crate::error::Result;
use crate::extent::Extent;
use crate::tokenizer::Tokenizer;

/// A span of a prompt.
#[derive(Clone, Copy)]
pub(crate) enum Span<'a> {
    /// Text of the template, in which special tokens count.
    Template(&'a str),
    /// Content, whose special tokens are plain text.
    Content(&'a str),
}

/// Token ids of the spans. Between two special tokens of the template they are encoded as one text.
///
/// With `may_go_on` the text may continue behind the spans: only tokens that no continuation changes are returned.
pub(crate) fn encode_spans(
    tokenizer: &Tokenizer,
    spans: &[Span<'_>],
    may_go_on: bool,
    extent: &mut Extent<'_>,
) -> Result<Vec<u32>> {
    let mut ids = Vec::new();
    let mut run = String::new();
    for span in spans {
        let mut literal = match span {
            Span::Content(text) => {
                run.push_str(text);
                continue;
            }
            Span::Template(text) => *text,
        };
        while let Some((at, len, id)) = tokenizer.find_special(literal) {
            run.push_str(&literal[..at]);
            tokenizer.encode_within(&run, &mut ids, extent)?;
            run.clear();
            if extent.is_used_up() || !extent.take(1) {
                return Ok(ids);
            }
            ids.push(id);
            literal = &literal[at + len..];
        }
        run.push_str(literal);
    }
    if may_go_on {
        run.truncate(tokenizer.standing(&run));
    }
    tokenizer.encode_within(&run, &mut ids, extent)?;
    Ok(ids)
}

//! PTX text to statements.

use crate::{Error, Result};

/// An operand as it is written.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Operand<'a> {
    /// A register, label or symbol.
    Name(&'a str),
    /// A negated predicate.
    Not(&'a str),
    /// An integer, or the bits of a float.
    Bits(u64),
    /// Memory: a register, symbol or number, and an offset.
    Address(Box<Operand<'a>>, i64),
    /// `{a, b, …}`
    Vector(Vec<Operand<'a>>),
    /// `a|b`
    Both(&'a str, &'a str),
}

/// An instruction or directive.
#[derive(Debug)]
pub(crate) struct Statement<'a> {
    pub(crate) line: u32,
    pub(crate) text: &'a str,
}

/// A piece of a function's body.
#[derive(Debug)]
pub(crate) enum Piece<'a> {
    Open,
    Close,
    Label(&'a str),
    Statement(Statement<'a>),
}

/// An instruction, taken apart.
#[derive(Debug)]
pub(crate) struct Written<'a> {
    /// Predicate that guards it, and whether it is negated.
    pub(crate) guard: Option<(&'a str, bool)>,
    /// Opcode and its modifiers: `ld`, `global`, `f32`.
    pub(crate) opcode: Vec<&'a str>,
    pub(crate) operands: Vec<Operand<'a>>,
}

impl Statement<'_> {
    pub(crate) fn error(&self, reason: impl Into<String>) -> Error {
        Error::Parse {
            line: self.line,
            text: self.text.split_whitespace().collect::<Vec<_>>().join(" "),
            reason: reason.into(),
        }
    }
}

/// The text with its comments made blank, so that lines stay.
pub(crate) fn without_comments(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        match line.find("//") {
            Some(at) => {
                out.push_str(&line[..at]);
                out.push('\n');
            }
            None => out.push_str(line),
        }
    }
    out
}

/// A cursor over text that counts lines.
pub(crate) struct Cursor<'a> {
    rest: &'a str,
    line: u32,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        Self {
            rest: text,
            line: 1,
        }
    }

    fn take(&mut self, bytes: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at(bytes);
        self.line += taken.matches('\n').count() as u32;
        self.rest = rest;
        taken
    }

    pub(crate) fn skip_blank(&mut self) {
        let blank = self.rest.len() - self.rest.trim_start().len();
        self.take(blank);
    }

    pub(crate) fn is_at_end(&self) -> bool {
        self.rest.is_empty()
    }

    /// What stands before the next of `ends`, and which that is; all of it where there is none.
    pub(crate) fn until(&mut self, ends: &[char]) -> (Statement<'a>, Option<char>) {
        self.skip_blank();
        let line = self.line;
        let found = self.rest.find(ends);
        let text = self.take(found.unwrap_or(self.rest.len()));
        let end = found.and_then(|_| self.take(1).chars().next());
        let statement = Statement {
            line,
            text: text.trim(),
        };
        (statement, end)
    }

    /// The rest of the line, as a statement.
    pub(crate) fn line(&mut self) -> Statement<'a> {
        self.until(&['\n']).0
    }

    pub(crate) fn peek(&self) -> &'a str {
        self.rest
    }

    /// The next piece of a body.
    pub(crate) fn piece(&mut self) -> Option<Piece<'a>> {
        self.skip_blank();
        if self.rest.starts_with('{') {
            self.take(1);
            return Some(Piece::Open);
        }
        if self.rest.starts_with('}') {
            self.take(1);
            return Some(Piece::Close);
        }
        if self.rest.is_empty() {
            return None;
        }
        let name = self.rest.find(|c: char| !is_name(c)).unwrap_or(0);
        if name > 0 && self.rest[name..].starts_with(':') && !self.rest[name..].starts_with("::") {
            let label = self.take(name);
            self.take(1);
            return Some(Piece::Label(label));
        }
        Some(Piece::Statement(self.until(&[';']).0))
    }
}

fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || "_$%.".contains(c)
}

impl<'a> Statement<'a> {
    /// Takes an instruction apart.
    pub(crate) fn written(&self) -> Result<Written<'a>> {
        let mut text = self.text;
        let mut guard = None;
        if let Some(rest) = text.strip_prefix('@') {
            let (name, rest) = rest
                .split_once(char::is_whitespace)
                .ok_or_else(|| self.error("a guard and nothing else"))?;
            guard = Some(match name.strip_prefix('!') {
                Some(name) => (name, true),
                None => (name, false),
            });
            text = rest.trim_start();
        }
        let (opcode, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        let operands = split(rest)
            .into_iter()
            .map(|operand| self.operand(operand))
            .collect::<Result<_>>()?;
        Ok(Written {
            guard,
            opcode: opcode.split('.').filter(|part| !part.is_empty()).collect(),
            operands,
        })
    }

    fn operand(&self, text: &'a str) -> Result<Operand<'a>> {
        let text = text.trim();
        if let Some(inner) = text.strip_prefix('{').and_then(|t| t.strip_suffix('}')) {
            let parts = split(inner).into_iter().map(|part| self.operand(part));
            return Ok(Operand::Vector(parts.collect::<Result<_>>()?));
        }
        if let Some(inner) = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')) {
            let (base, offset) = match inner.split_once('+') {
                Some((base, offset)) => (base, number(offset.trim())),
                None => (inner, Some(0)),
            };
            let offset = offset.ok_or_else(|| self.error("an offset that is no number"))?;
            return Ok(Operand::Address(
                Box::new(self.operand(base)?),
                offset as i64,
            ));
        }
        if let Some(name) = text.strip_prefix('!') {
            return Ok(Operand::Not(name));
        }
        if let Some((a, b)) = text.split_once('|') {
            return Ok(Operand::Both(a.trim(), b.trim()));
        }
        if let Some(bits) = number(text) {
            return Ok(Operand::Bits(bits));
        }
        if !text.is_empty() && text.chars().all(is_name) {
            return Ok(Operand::Name(text));
        }
        Err(self.error(format!("no operand: {text:?}")))
    }
}

/// Operands at their commas, except those in brackets.
fn split(text: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut start) = (Vec::new(), 0, 0);
    for (at, c) in text.char_indices() {
        match c {
            '{' | '[' => depth += 1,
            '}' | ']' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    if !text[start..].trim().is_empty() {
        parts.push(&text[start..]);
    }
    parts
}

/// An integer (two's complement) or the bits of `0f…` and `0d…`.
pub(crate) fn number(text: &str) -> Option<u64> {
    let hex = |digits: &str| u64::from_str_radix(digits.trim_end_matches('U'), 16).ok();
    if let Some(digits) = text.strip_prefix("0f").or(text.strip_prefix("0d")) {
        return hex(digits);
    }
    if let Some(digits) = text.strip_prefix("0x") {
        return hex(digits);
    }
    match text.strip_prefix('-') {
        Some(digits) => Some((digits.parse::<u64>().ok()? as i64).wrapping_neg() as u64),
        None => text.trim_end_matches('U').parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instruction_is_taken_apart() {
        let statement = Statement {
            line: 1,
            text: "@!%p1 ld.global.v2.f32 \t{%f1, %f2}, [%rd1+-8]",
        };
        let written = statement.written().unwrap();
        assert_eq!(written.guard, Some(("%p1", true)));
        assert_eq!(written.opcode, ["ld", "global", "v2", "f32"]);
        let name = Operand::Name;
        let want = [
            Operand::Vector(vec![name("%f1"), name("%f2")]),
            Operand::Address(Box::new(name("%rd1")), -8),
        ];
        assert_eq!(written.operands, want);
    }

    #[test]
    fn numbers_are_bits() {
        assert_eq!(number("-1"), Some(u64::MAX));
        assert_eq!(number("0f3F800000"), Some(0x3f80_0000));
        assert_eq!(number("0d3FF0000000000000"), Some(1f64.to_bits()));
        assert_eq!(number("0x1F"), Some(31));
        assert_eq!(number("%r1"), None);
    }

    #[test]
    fn bodies_come_in_pieces() {
        let text = without_comments("$L_1: // here\n { mov.b32 %r1, {%rs1, %rs2};}\n ret;");
        let mut cursor = Cursor::new(&text);
        assert!(matches!(cursor.piece(), Some(Piece::Label("$L_1"))));
        assert!(matches!(cursor.piece(), Some(Piece::Open)));
        let Some(Piece::Statement(mov)) = cursor.piece() else {
            panic!("a statement");
        };
        assert_eq!((mov.line, mov.text), (2, "mov.b32 %r1, {%rs1, %rs2}"));
        assert!(matches!(cursor.piece(), Some(Piece::Close)));
        assert!(matches!(
            cursor.piece(),
            Some(Piece::Statement(Statement {
                line: 3,
                text: "ret"
            }))
        ));
        assert!(cursor.piece().is_none());
    }
}

//! One conversation, rendered with its chat template and tokenized message by message.
//!
//! Every content is replaced by a marker, so that the text between markers is known to be the template's own: only there
//! do special tokens count. Runs of text between two special tokens, template and content alike, are encoded together,
//! so the ids are those of the reference implementation on the full text.
//!
//! A reply owns its content and the end-of-turn token that directly follows it; a user's message owns everything from
//! there to the end of the generation prompt; a system message owns everything up to the first special token after it.
//! A user's message is rendered with nothing after it, exactly as the model is asked, so that its tokens are the same
//! whenever they are computed.

use std::collections::VecDeque;
use std::ops::Range;
use std::rc::Rc;

use crate::error::{Error, Result};
use crate::extent::Extent;
use crate::jinja::{Jinja, Rendered, Surroundings};
use crate::marker::{marked, marker, next_marker};
use crate::message::{ChatMessage, Role};
use crate::span::{Span, encode_spans};
use crate::thought;
use crate::tokenizer::Tokenizer;

/// Where the tokens of a prompt end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ends {
    /// With the last message's turn, and the generation prompt after a user's.
    WithTurn,
    /// With the content of the last message, a user's that is still being typed: behind its last character, at which the text
    /// must be cuttable ([`Tokenizer::standing`]). With the text before the content if that is empty.
    InContent,
}

/// One message of a strictly alternating conversation; `message` is `None` for an inserted one.
#[derive(Clone, Copy)]
struct Turn<'a> {
    role: Role,
    message: Option<ChatMessage<'a>>,
}

impl Turn<'_> {
    fn content(&self) -> &str {
        self.message.map_or("", |m| m.content)
    }

    fn stored(&self) -> Option<&[u32]> {
        self.message.and_then(|m| m.tokens)
    }
}

/// A conversation that is rendered with a chat template and tokenized message by message.
pub(crate) struct Conversation<'a> {
    jinja: &'a Jinja,
    tokenizer: &'a Tokenizer,
    date: &'a str,
    turns: Vec<Turn<'a>>,
    /// Whether the system text goes into the first user's message, for templates that know no system role.
    merged: bool,
    /// The message whose tokens end with its content.
    open: Option<usize>,
    /// Whether earlier turns may be left out of a rendering; `None` until it was tried.
    leaves_out: Option<bool>,
    /// The last renderings, by index: each message needs those of its neighbours.
    renders: VecDeque<(usize, Rc<str>)>,
}

/// Renderings that are kept.
const MOST_RENDERS: usize = 4;
/// Turns that are kept at the beginning (system, first exchange) and at the end of a rendering without its middle. An even number
/// is left out, since templates insist on alternating roles.
const FIRST_TURNS: usize = 5;
const LAST_TURNS: usize = 6;

impl<'a> Conversation<'a> {
    /// Inserts an empty message of the other role wherever two messages of one role follow each other.
    pub(crate) fn new(
        jinja: &'a Jinja,
        tokenizer: &'a Tokenizer,
        messages: &[ChatMessage<'a>],
        date: &'a str,
    ) -> Result<Conversation<'a>> {
        let mut turns: Vec<Turn<'a>> = Vec::with_capacity(messages.len() + 1);
        for (index, message) in messages.iter().enumerate() {
            if message.role == Role::System && index > 0 {
                return Err(Error::Template(
                    "a system message stands after the beginning".into(),
                ));
            }
            let before = turns.last().map_or(Role::System, |turn| turn.role);
            match (message.role, before) {
                (Role::User, Role::User) => turns.push(Turn {
                    role: Role::Assistant,
                    message: None,
                }),
                (Role::Assistant, Role::System | Role::Assistant) => turns.push(Turn {
                    role: Role::User,
                    message: None,
                }),
                _ => {}
            }
            turns.push(Turn {
                role: message.role,
                message: Some(*message),
            });
        }
        let mut conversation = Conversation {
            jinja,
            tokenizer,
            date,
            turns,
            merged: false,
            open: None,
            leaves_out: None,
            renders: VecDeque::new(),
        };
        if conversation
            .turns
            .first()
            .is_some_and(|turn| turn.role == Role::System)
        {
            let both = |text: &Rc<str>| text.contains(&marker(0)) && text.contains(&marker(1));
            conversation.merged = !conversation.render(1).is_ok_and(|text| both(&text));
            conversation.renders.clear();
        }
        Ok(conversation)
    }

    /// One token list per real message, as far as `extent` goes: where it is used up there are fewer lists, and the last one is
    /// incomplete.
    pub(crate) fn tokenize(
        &mut self,
        ends: Ends,
        extent: &mut Extent<'_>,
    ) -> Result<Vec<Vec<u32>>> {
        if ends == Ends::InContent {
            self.open = self.turns.len().checked_sub(1);
        }
        let mut lists = Vec::with_capacity(self.turns.len());
        // The tokens of an inserted message belong to the next real one.
        let mut carried = Vec::new();
        for index in 0..self.turns.len() {
            let Some(message) = self.turns[index].message else {
                if self.turns[index].role == Role::User {
                    carried.extend(self.tokens(index, extent)?);
                }
                continue;
            };
            let mut list = std::mem::take(&mut carried);
            match message.tokens {
                Some(tokens) if extent.take(tokens.len()) => list = tokens.to_vec(),
                Some(_) => {}
                None => list.extend(self.tokens(index, extent)?),
            }
            lists.push(list);
            if extent.is_used_up() {
                break;
            }
        }
        Ok(lists)
    }

    /// The tokens that the turn owns, whether or not it has stored ones.
    fn tokens(&mut self, index: usize, extent: &mut Extent<'_>) -> Result<Vec<u32>> {
        match self.turns[index].role {
            Role::System => {
                let text = self.render(index + 1)?;
                let end = self.system_end(&text);
                Ok(self.first(self.encode(&text[..end], extent)?))
            }
            Role::User => self.user_tokens(index, extent),
            Role::Assistant => self.reply_tokens(index, extent),
        }
    }

    fn user_tokens(&mut self, index: usize, extent: &mut Extent<'_>) -> Result<Vec<u32>> {
        let text = self.render(index)?;
        let Some(before) = index.checked_sub(1).map(|i| self.turns[i]) else {
            return Ok(self.first(self.encode(&text, extent)?));
        };
        if before.role == Role::System {
            let start = self.system_end(&text);
            let tokens = self.encode(&text[start..], extent)?;
            return Ok(if start == 0 {
                self.first(tokens)
            } else {
                tokens
            });
        }
        let tail = after(&text, index - 1)?;
        let end_of_turn = self.end_of_turn(tail);
        let has_ended = match (before.stored(), end_of_turn) {
            (_, None) => false,
            (Some(stored), Some((_, id))) => stored.last() == Some(&id),
            (None, Some(_)) => before.message.is_some(),
        };
        let start = end_of_turn.filter(|_| has_ended).map_or(0, |(end, _)| end);
        self.encode(&tail[start..], extent)
    }

    fn reply_tokens(&mut self, index: usize, extent: &mut Extent<'_>) -> Result<Vec<u32>> {
        let asked = self.render(index - 1)?;
        let prompt = after(&asked, index - 1)?;
        let text = self.render(index + 1)?;
        let tail = after(&text, index - 1)?;
        let mark = marker(index);
        let at = tail
            .find(&mark)
            .ok_or_else(|| left_out(self.turns[index].role))?;
        // Template text between the generation prompt and the content, e.g. a space.
        let content = self.turns[index].content();
        let space = &content[..content.len() - content.trim_start().len()];
        let lead = match tail[..at].strip_prefix(prompt) {
            Some(extra) => extra,
            None if tail[..at].ends_with(space) => space,
            None => "",
        };
        let end = self
            .end_of_turn(&tail[at + mark.len()..])
            .map_or(0, |(end, _)| end);
        let behind = &tail[at + mark.len()..at + mark.len() + end];
        match thought::opening(prompt) {
            Some(opening) => self.encode_thought(opening, content, behind, extent),
            None => self.encode(&format!("{lead}{mark}{behind}"), extent),
        }
    }

    /// Ids of a reply whose generation prompt opens a thought: without the opening tag, which belongs to the prompt, and with the
    /// closing tag as a special token. A reply without a thought closes it at once.
    fn encode_thought(
        &self,
        opening: &str,
        content: &str,
        behind: &str,
        extent: &mut Extent<'_>,
    ) -> Result<Vec<u32>> {
        let close = thought::closing(opening);
        let tag = opening.trim_end();
        let inside = content.trim_start().strip_prefix(tag).map(|rest| {
            let space = &opening[tag.len()..];
            rest.strip_prefix(space).unwrap_or(rest).trim_end()
        });
        let (thought, answer) = match inside {
            Some(inside) => match inside.split_once(close.as_str()) {
                Some((thought, answer)) => (thought, Some(answer.to_string())),
                None => (inside, None),
            },
            None => ("\n", Some(format!("\n\n{}", content.trim()))),
        };
        let Some(answer) = answer else {
            return encode_spans(
                self.tokenizer,
                &[Span::Content(thought), Span::Template(behind)],
                false,
                extent,
            );
        };
        let parts = [
            Span::Content(thought),
            Span::Template(&close),
            Span::Content(&answer),
            Span::Template(behind),
        ];
        encode_spans(self.tokenizer, &parts, false, extent)
    }

    /// The text of turns 0 to `index`, the last one a user's (inserted, if there is none), with the generation prompt. A long
    /// conversation is rendered without the turns in its middle, so that rendering every message takes linear time: callers read
    /// the end only. One full rendering per conversation checks that the end is the same.
    fn render(&mut self, index: usize) -> Result<Rc<str>> {
        if let Some((_, text)) = self.renders.iter().find(|(of, _)| *of == index) {
            return Ok(Rc::clone(text));
        }
        let omitted = index.saturating_sub(FIRST_TURNS + LAST_TURNS) & !1;
        let text: Rc<str> = match omitted > 0 && self.may_leave_out(index, omitted)? {
            true => self.render_without(index, FIRST_TURNS..FIRST_TURNS + omitted)?,
            false => self.render_without(index, 0..0)?,
        }
        .into();
        if self.renders.len() == MOST_RENDERS {
            self.renders.pop_front();
        }
        self.renders.push_back((index, Rc::clone(&text)));
        Ok(text)
    }

    /// Whether the text after the second last turn is the same without the turns in the middle.
    fn may_leave_out(&mut self, index: usize, omitted: usize) -> Result<bool> {
        if let Some(known) = self.leaves_out {
            return Ok(known);
        }
        let whole = self.render_without(index, 0..0)?;
        let end = after(&whole, index - 2)?;
        let short = self.render_without(index, FIRST_TURNS..FIRST_TURNS + omitted);
        let is_same = short.is_ok_and(|short| after(&short, index - 2).is_ok_and(|it| it == end));
        self.leaves_out = Some(is_same);
        Ok(is_same)
    }

    fn render_without(&self, index: usize, omitted: Range<usize>) -> Result<String> {
        let mut contents: Vec<(Role, String)> = Vec::with_capacity(index + 1 - omitted.len());
        for i in (0..=index).filter(|i| !omitted.contains(i)) {
            let turn = self.turns.get(i).copied().unwrap_or(Turn {
                role: Role::User,
                message: None,
            });
            // Stored ids hold the outer whitespace of the content already.
            let content = if turn.stored().is_some() {
                ""
            } else {
                turn.content()
            };
            contents.push((turn.role, marked(content, i)));
        }
        if self.merged {
            let (_, system) = contents.remove(0);
            contents[0].1 = format!("{system}\n\n{}", contents[0].1);
        }
        let messages: Vec<Rendered<'_>> = contents
            .iter()
            .map(|(role, content)| Rendered {
                role: role.name(),
                content,
            })
            .collect();
        let around = Surroundings {
            bos: self.tokenizer.bos_name(),
            eos: self.tokenizer.eos_name(),
            date: self.date,
        };
        let text = self
            .jinja
            .render(&messages, true, around)
            .map_err(Error::Template)?;
        if !text.contains(&marker(index)) {
            return Err(left_out(Role::User));
        }
        Ok(text)
    }

    /// Where the system message's part ends in a text that holds it and the first user's message: behind the first special
    /// token between the two, else behind the last one before the system text.
    fn system_end(&self, text: &str) -> usize {
        let (Some(system), Some(user)) = (text.find(&marker(0)), text.find(&marker(1))) else {
            return 0;
        };
        let behind = system + marker(0).len();
        let between = text.get(behind..user).unwrap_or_default();
        if let Some((at, len, _)) = self.tokenizer.find_special(between) {
            return behind + at + len;
        }
        let mut end = 0;
        while let Some((at, len, _)) = self.tokenizer.find_special(&text[end..system.min(user)]) {
            end += at + len;
        }
        end
    }

    /// The special token that directly follows a reply: its end in `tail` and its id.
    fn end_of_turn(&self, tail: &str) -> Option<(usize, u32)> {
        let (at, len, id) = self.tokenizer.find_special(tail)?;
        tail[..at].trim().is_empty().then_some((at + len, id))
    }

    /// The first tokens of the prompt begin with BOS where the model wants it and the template does not write it.
    fn first(&self, mut tokens: Vec<u32>) -> Vec<u32> {
        if let Some(bos) = self
            .tokenizer
            .bos()
            .filter(|bos| tokens.first() != Some(bos))
        {
            tokens.insert(0, bos);
        }
        tokens
    }

    /// Ids of template text with markers: special tokens are recognised in the template's own text only.
    fn encode(&self, text: &str, extent: &mut Extent<'_>) -> Result<Vec<u32>> {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((at, index, end)) = next_marker(rest) {
            parts.push(Span::Template(&rest[..at]));
            let content = self.turns.get(index).map_or("", Turn::content);
            parts.push(Span::Content(content.trim()));
            if self.open == Some(index) {
                return encode_spans(self.tokenizer, &parts, content.trim().is_empty(), extent);
            }
            rest = &rest[end..];
        }
        parts.push(Span::Template(rest));
        encode_spans(self.tokenizer, &parts, false, extent)
    }
}

/// The text behind the last marker of a message.
fn after(text: &str, index: usize) -> Result<&str> {
    let mark = marker(index);
    let at = text.rfind(&mark).ok_or_else(|| left_out(Role::Assistant))?;
    Ok(&text[at + mark.len()..])
}

fn left_out(role: Role) -> Error {
    Error::Template(format!("it leaves out a message of the {}", role.name()))
}

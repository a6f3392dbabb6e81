//! A conversation to one token list per message.
//!
//! The model's Jinja is rendered with every content replaced by a marker, so that the text between markers is known to
//! be the template's own: only there do special tokens count. Runs of text between two special tokens, template and
//! content alike, are encoded together, so the ids are those of the reference implementation on the full text.
//!
//! Who owns which tokens: a reply owns its content and the end-of-turn token that directly follows it; a user's message
//! owns everything from there to the end of the generation prompt; a system message owns everything up to the first
//! special token after it. A user's message is rendered with nothing after it, exactly as the model is asked, so what it
//! got then it gets again later.

use std::collections::VecDeque;
use std::ops::Range;
use std::rc::Rc;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::extent::Extent;
use crate::gguf::GgufFile;
use crate::jinja::{Jinja, Rendered, Surroundings};
use crate::marker::{marked, marker, next_marker};
use crate::thought;
use crate::tokenizer::Tokenizer;

/// Who speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Instructions before the conversation.
    System,
    /// The person.
    User,
    /// The model.
    Assistant,
}

/// A message to be tokenised, or one with the ids the model saw.
#[derive(Clone, Copy, Debug)]
pub struct ChatMessage<'a> {
    /// Who speaks.
    pub role: Role,
    /// What is said.
    pub content: &'a str,
    /// Stored ids: returned unchanged.
    pub tokens: Option<&'a [u32]>,
}

/// The model file's chat template; ChatML or [`PLAIN`] where the file has none, or one that cannot be used.
pub struct ChatTemplate {
    jinja: Jinja,
    note: Option<String>,
}

/// For files without a template whose vocabulary has ChatML's tokens.
const CHATML: &str = "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}\
                      {% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";
/// For all other files without a template: the system text, then `User: …` and `Assistant: …` lines; a reply ends with
/// the end-of-sequence token.
const PLAIN: &str = "{% for m in messages %}{% if m.role == 'system' %}{{ m.content + '\n\n' }}\
                     {% elif m.role == 'user' %}{{ 'User: ' + m.content + '\n' }}\
                     {% else %}{{ 'Assistant: ' + m.content + eos_token + '\n' }}{% endif %}{% endfor %}\
                     {% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}";

const KEY: &str = "tokenizer.chat_template";

/// Compiles a template and renders a conversation with it, as one that is used has to.
fn usable(text: &str, file: &GgufFile) -> std::result::Result<Jinja, String> {
    let jinja = Jinja::new(text)?;
    let name = |key: &str| {
        let id = file.number(key).ok().flatten()?;
        file.text_at("tokenizer.ggml.tokens", usize::try_from(id).ok()?)
    };
    let around = Surroundings {
        bos: name("tokenizer.ggml.bos_token_id"),
        eos: name("tokenizer.ggml.eos_token_id"),
        ..Surroundings::default()
    };
    let contents: Vec<String> = (0..3).map(marker).collect();
    let message = |role, index: usize| Rendered {
        role: name_of(role),
        content: &contents[index],
    };
    let turns = [
        message(Role::User, 0),
        message(Role::Assistant, 1),
        message(Role::User, 2),
    ];
    for messages in [&turns[..1], &turns[..]] {
        let text = jinja.render(messages, true, around)?;
        let last = messages.len() - 1;
        // Earlier words may be cut to their answer, and not be left out.
        if (0..=last).any(|index| !text.contains(&contents[index])) {
            return Err("it leaves out messages".into());
        }
    }
    Ok(jinja)
}

impl ChatTemplate {
    /// The template of a model file. One that cannot be used is no reason not to use the model: another one is taken, and
    /// [`note`](Self::note) says so.
    pub(crate) fn read(file: &GgufFile) -> Result<ChatTemplate> {
        let (name, fallback) = match ["<|im_start|>", "<|im_end|>"]
            .iter()
            .all(|it| file.has_special(it))
        {
            true => ("ChatML", CHATML),
            false => ("a plain one", PLAIN),
        };
        let of_file = match file.text(KEY) {
            Ok(Some(text)) => usable(text, file),
            Ok(None) => return ChatTemplate::new(fallback),
            Err(_) => Err(format!("{KEY} is not text")),
        };
        match of_file {
            Ok(jinja) => Ok(ChatTemplate { jinja, note: None }),
            Err(reason) => {
                let reason = reason.split_whitespace().collect::<Vec<_>>().join(" ");
                let note = format!(
                    "its chat template cannot be used ({reason}); {name} is used instead, so that replies may be worse than they could be"
                );
                Ok(ChatTemplate {
                    note: Some(note),
                    ..ChatTemplate::new(fallback)?
                })
            }
        }
    }

    /// Messages that have been rendered so far, each as often as it was.
    pub fn num_rendered_messages(&self) -> u64 {
        self.jinja.num_rendered_messages()
    }

    /// A template from its Jinja text.
    pub fn new(text: &str) -> Result<ChatTemplate> {
        Ok(ChatTemplate {
            jinja: Jinja::new(text).map_err(Error::Template)?,
            note: None,
        })
    }

    /// Why the model file's own template is not the one that is used, if it is not.
    pub fn note(&self) -> Option<&str> {
        self.note.as_deref()
    }

    /// One token list per message; their concatenation is the prompt, ending with the generation prompt when the last
    /// message is the user's. Messages with `tokens` keep them. If a reply's tokens do not end with the end-of-turn token
    /// (it was stopped), the next message's begin with it. `date` is the conversation's frozen ISO date-time.
    ///
    /// A system message may only come first. Where two messages of one role follow each other an empty one of the other
    /// role is thought between them, since most templates insist on turns.
    pub fn tokenize(
        &self,
        tokenizer: &Tokenizer,
        messages: &[ChatMessage<'_>],
        date: &str,
    ) -> Result<Vec<Vec<u32>>> {
        self.tokenize_within(
            tokenizer,
            messages,
            date,
            Ends::WithTurn,
            &mut Extent::whole(),
        )
    }

    /// As `tokenize`, as far as `extent` goes: where it is used up there are fewer lists, and the last one is a beginning.
    ///
    /// # Errors
    /// As `tokenize`, and [`Error::Interrupted`] when it is not wanted any more.
    pub fn tokenize_within(
        &self,
        tokenizer: &Tokenizer,
        messages: &[ChatMessage<'_>],
        date: &str,
        ends: Ends,
        extent: &mut Extent<'_>,
    ) -> Result<Vec<Vec<u32>>> {
        let mut conversation = Conversation::new(self, tokenizer, messages, date)?;
        if ends == Ends::InContent {
            conversation.open = conversation.turns.len().checked_sub(1);
        }
        let mut lists = Vec::with_capacity(messages.len());
        // What a thought message would own goes to the next real one.
        let mut carried = Vec::new();
        for index in 0..conversation.turns.len() {
            let Some(message) = conversation.turns[index].message else {
                if conversation.turns[index].role == Role::User {
                    carried.extend(conversation.tokens(index, extent)?);
                }
                continue;
            };
            let mut list = std::mem::take(&mut carried);
            match message.tokens {
                Some(tokens) if extent.take(tokens.len()) => list = tokens.to_vec(),
                Some(_) => {}
                None => list.extend(conversation.tokens(index, extent)?),
            }
            lists.push(list);
            if extent.is_used_up() {
                break;
            }
        }
        Ok(lists)
    }
}

/// Where the tokens of a prompt end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ends {
    /// With the last message's turn, and the generation prompt after a user's.
    WithTurn,
    /// Where the content of the last message ends, a user's that is still being typed: behind its last character, which must
    /// be one at which the text can be cut ([`Tokenizer::standing`]). Where it is empty, with what stands before it.
    InContent,
}

/// One message of a strictly alternating conversation; `message` is `None` where it is only thought.
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

struct Conversation<'a> {
    template: &'a ChatTemplate,
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
/// Turns at the beginning and at the end of a rendering that leaves out those between: system, first exchange; and what the
/// last one can see. An even number is left out, since templates insist on turns that alternate.
const FIRST_TURNS: usize = 5;
const LAST_TURNS: usize = 6;

impl<'a> Conversation<'a> {
    fn new(
        template: &'a ChatTemplate,
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
            template,
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

    /// The tokens that the turn owns, without looking at stored ones.
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

    /// Ids of a reply whose prompt has opened a thought: without the tag that the prompt has, and with the closing one as the model
    /// writes it. One that has no thought closes it at once.
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
            return self.encode_parts(
                &[Part::Plain(thought), Part::Template(behind)],
                false,
                extent,
            );
        };
        let parts = [
            Part::Plain(thought),
            Part::Template(&close),
            Part::Plain(&answer),
            Part::Template(behind),
        ];
        self.encode_parts(&parts, false, extent)
    }

    /// Turns 0 to `index` as text, the last one a user's (thought, if there is none), with the generation prompt. Of a long
    /// conversation the turns between its beginning and its end are left out, so that a conversation of many turns is rendered
    /// in linear time: who asks looks at the end only. That this changes nothing there is tried once.
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

    /// Whether what follows the second last turn is the same without the turns between.
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
                role: name_of(*role),
                content,
            })
            .collect();
        let around = Surroundings {
            bos: self.tokenizer.bos_name(),
            eos: self.tokenizer.eos_name(),
            date: self.date,
        };
        let text = self
            .template
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
            parts.push(Part::Template(&rest[..at]));
            let content = self.turns.get(index).map_or("", Turn::content);
            parts.push(Part::Plain(content.trim()));
            if self.open == Some(index) {
                return self.encode_parts(&parts, content.trim().is_empty(), extent);
            }
            rest = &rest[end..];
        }
        parts.push(Part::Template(rest));
        self.encode_parts(&parts, false, extent)
    }

    /// Where `may_go_on`, what follows the parts is not known, and only what stands whatever it is counts.
    fn encode_parts(
        &self,
        parts: &[Part<'_>],
        may_go_on: bool,
        extent: &mut Extent<'_>,
    ) -> Result<Vec<u32>> {
        let mut ids = Vec::new();
        let mut run = String::new();
        for part in parts {
            let mut literal = match part {
                Part::Plain(text) => {
                    run.push_str(text);
                    continue;
                }
                Part::Template(text) => *text,
            };
            while let Some((at, len, id)) = self.tokenizer.find_special(literal) {
                run.push_str(&literal[..at]);
                self.tokenizer.encode_within(&run, &mut ids, extent)?;
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
            run.truncate(self.tokenizer.standing(&run));
        }
        self.tokenizer.encode_within(&run, &mut ids, extent)?;
        Ok(ids)
    }
}

/// A stretch of a prompt.
#[derive(Clone, Copy)]
enum Part<'a> {
    /// The template's own text, which may name special tokens.
    Template(&'a str),
    /// Words, which never do.
    Plain(&'a str),
}

/// What follows the last marker of a message.
fn after(text: &str, index: usize) -> Result<&str> {
    let mark = marker(index);
    let at = text.rfind(&mark).ok_or_else(|| left_out(Role::Assistant))?;
    Ok(&text[at + mark.len()..])
}

fn left_out(role: Role) -> Error {
    Error::Template(format!("it leaves out a message of the {}", name_of(role)))
}

fn name_of(role: Role) -> &'static str {
    match role {
        Role::System => "system",
        Role::User => "user",
        Role::Assistant => "assistant",
    }
}

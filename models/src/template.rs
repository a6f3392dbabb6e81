//! The chat template of a model file, or a generic one in its place.

use crate::conversation::{Conversation, Ends};
use crate::error::{Error, Result};
use crate::extent::Extent;
use crate::gguf::GgufFile;
use crate::jinja::{Jinja, Rendered, Surroundings};
use crate::marker::marker;
use crate::message::{ChatMessage, Role};
use crate::tokenizer::Tokenizer;

/// The model file's chat template; ChatML or [`PLAIN`] if the file has none, or one that fails a trial rendering.
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

/// Compiles a template and renders a short conversation with it; the error says why it cannot be used.
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
    let message = |role: Role, index: usize| Rendered {
        role: role.name(),
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
        // A template may cut earlier replies to their answers; it may not leave out whole messages.
        if (0..=last).any(|index| !text.contains(&contents[index])) {
            return Err("it leaves out messages".into());
        }
    }
    Ok(jinja)
}

impl ChatTemplate {
    /// The template of a model file. A template that cannot be used does not refuse the model: a generic one takes its place, and
    /// [`note`](Self::note) gives the reason.
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

    /// How many messages have been rendered so far, counted once for every rendering.
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

    /// Why the model file's own template is not used; absent if it is used.
    pub fn note(&self) -> Option<&str> {
        self.note.as_deref()
    }

    /// One token list per message; their concatenation is the prompt, ending with the generation prompt when the last
    /// message is the user's. Messages with `tokens` keep them. If a reply's tokens do not end with the end-of-turn token
    /// (it was stopped), the next message's begin with it. `date` is the conversation's frozen ISO date-time.
    ///
    /// A system message may only come first. Between two messages of one role an empty message of the other role is inserted,
    /// since most templates insist on alternating roles.
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

    /// Tokenizes like [`tokenize`](Self::tokenize), until `extent` is used up: then there are fewer lists, and the last one is
    /// incomplete.
    ///
    /// # Errors
    /// When the template refuses the messages; [`Error::Interrupted`] when `extent` is interrupted.
    pub fn tokenize_within(
        &self,
        tokenizer: &Tokenizer,
        messages: &[ChatMessage<'_>],
        date: &str,
        ends: Ends,
        extent: &mut Extent<'_>,
    ) -> Result<Vec<Vec<u32>>> {
        Conversation::new(&self.jinja, tokenizer, messages, date)?.tokenize(ends, extent)
    }
}

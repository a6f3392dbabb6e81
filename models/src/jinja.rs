//! The model file's Jinja, rendered as the reference implementation renders it.

use std::sync::atomic::{AtomicU64, Ordering};

use minijinja::{Environment, ErrorKind, Value, context};

use crate::date::Date;

/// A compiled chat template.
pub(crate) struct Jinja {
    environment: Environment<'static>,
    rendered_messages: AtomicU64,
}

/// A message as templates see it.
pub(crate) struct Rendered<'a> {
    pub(crate) role: &'static str,
    pub(crate) content: &'a str,
}

/// What a template may print beside the messages.
#[derive(Clone, Copy)]
pub(crate) struct Surroundings<'a> {
    pub(crate) bos: Option<&'a str>,
    pub(crate) eos: Option<&'a str>,
    /// ISO date-time for `strftime_now`.
    pub(crate) date: &'a str,
}

/// No special tokens and an arbitrary date, for a trial rendering of a template.
impl Default for Surroundings<'_> {
    fn default() -> Self {
        Self {
            bos: None,
            eos: None,
            date: "2026-01-31T12:00:00",
        }
    }
}

const NAME: &str = "chat";

impl Jinja {
    /// Compiles the text, or says what is wrong with it.
    pub(crate) fn new(text: &str) -> Result<Jinja, String> {
        let mut environment = Environment::new();
        environment.set_trim_blocks(true);
        environment.set_lstrip_blocks(true);
        environment
            .set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.add_function(
            "raise_exception",
            |message: String| -> Result<Value, minijinja::Error> {
                Err(minijinja::Error::new(ErrorKind::InvalidOperation, message))
            },
        );
        environment
            .add_template_owned(NAME, without_generation_tags(text))
            .map_err(|error| error.to_string())?;
        Ok(Jinja {
            environment,
            rendered_messages: AtomicU64::new(0),
        })
    }

    /// Number of messages rendered so far, counted once for each rendering.
    pub(crate) fn num_rendered_messages(&self) -> u64 {
        self.rendered_messages.load(Ordering::Relaxed)
    }

    /// The conversation as text.
    pub(crate) fn render(
        &self,
        messages: &[Rendered<'_>],
        generate: bool,
        around: Surroundings<'_>,
    ) -> Result<String, String> {
        let num_messages = messages.len() as u64;
        self.rendered_messages
            .fetch_add(num_messages, Ordering::Relaxed);
        let messages: Vec<Value> = messages
            .iter()
            .map(|m| context! { role => m.role, content => m.content })
            .collect();
        let date = around.date.to_string();
        let strftime_now =
            Value::from_function(move |format: String| -> Result<String, minijinja::Error> {
                let date = Date::parse(&date).ok_or_else(|| {
                    minijinja::Error::new(
                        ErrorKind::InvalidOperation,
                        format!("{date:?} is not a date"),
                    )
                })?;
                Ok(date.format(&format))
            });
        let template = self
            .environment
            .get_template(NAME)
            .map_err(|error| error.to_string())?;
        let context = context! {
            messages,
            strftime_now,
            add_generation_prompt => generate,
            bos_token => around.bos.unwrap_or_default(),
            eos_token => around.eos.unwrap_or_default(),
            tools => Value::from(()),
            documents => Value::from(()),
        };
        template.render(context).map_err(|error| error.to_string())
    }
}

/// `{% generation %}` marks replies for training and prints nothing; Jinja proper does not know it.
fn without_generation_tags(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find("{%") {
        let Some(length) = rest[start..].find("%}") else {
            break;
        };
        let tag = &rest[start..start + length + 2];
        let word =
            tag[2..tag.len() - 2].trim_matches(|c: char| c.is_whitespace() || c == '-' || c == '+');
        out.push_str(&rest[..start]);
        match word {
            // An empty block keeps the tag's whitespace control.
            "generation" | "endgeneration" => {
                out.push_str(&tag.replace(
                    word,
                    if word == "generation" {
                        "if true"
                    } else {
                        "endif"
                    },
                ));
            }
            _ => out.push_str(tag),
        }
        rest = &rest[start + length + 2..];
    }
    out.push_str(rest);
    out
}

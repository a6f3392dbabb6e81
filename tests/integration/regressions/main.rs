//! Scenarios that once went wrong, or well might, each named for its promise.

mod branches;
mod cut_reply;
mod drafts;
mod full_context;
mod model_choice;
#[cfg(target_os = "linux")]
mod process;
mod thoughts;
mod type_ahead;

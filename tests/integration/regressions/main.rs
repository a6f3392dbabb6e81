//! Scenarios that once went wrong, or well might, each named for its promise.

mod branches;
mod full_context;
mod type_ahead;

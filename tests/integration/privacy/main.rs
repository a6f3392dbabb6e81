//! Conversations that are encrypted on disk: nothing of them is found there, and nothing else changes.

mod canary;
mod changing;

//! Memory is planned before it is taken, told while it is used, kept within its limits, and given back.

mod beside;
mod host;
mod limits;
#[cfg(target_os = "linux")]
mod page_cache;
mod pins;
mod plan;
mod random;
mod release;
mod reserve;
mod told;

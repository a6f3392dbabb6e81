//! The laws of Reprise, a file each, over the real default model and over tiny seeded ones.

mod l01_resume_equals_never_left;
mod l02_an_edit_costs_its_suffix;
mod l03_at_most_len_minus_one_reused;
mod l04_deleting_kv_loses_no_word;
mod l05_a_block_never_crosses_fingerprints;
mod l06_words_first;
mod l07_side_work_is_free;
mod l08_counted_not_claimed;
mod l09_a_turn_writes_only_what_is_new;
mod l10_template_drift_is_seen;

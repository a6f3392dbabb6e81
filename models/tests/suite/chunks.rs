//! Law 1: a token's keys, values and logits do not depend on how the prompt was cut or on the number of threads.

use candle_core::quantized::GgmlDType;
use kernels::{KvPool, Path, Team};
use models::tiny::TinyModel;
use models::{Architecture, Error, Model};
use rand::{Rng, SeedableRng};

use crate::support::{default_model, default_model_path, load_in, load_on, sequence, tiny, tokens};

/// Bits of logits and the bytes of all blocks.
#[derive(PartialEq)]
struct Outcome {
    logits: Vec<u32>,
    blocks: Vec<Vec<u8>>,
}

fn bits(logits: &[f32]) -> Vec<u32> {
    logits.iter().map(|l| l.to_bits()).collect()
}

fn blocks(pool: &KvPool, table: &[u32]) -> Vec<Vec<u8>> {
    let read = |slot: &u32| {
        let mut bytes = vec![0; pool.layout().slot_bytes()];
        pool.read_slot(*slot, &mut bytes).unwrap();
        bytes
    };
    table.iter().map(read).collect()
}

/// Runs `tokens` in chunks that end at `cuts`; every chunk's last logits must be those of the uncut run.
fn run(model: &Model, tokens: &[u32], cuts: &[usize], whole: Option<&[Vec<f32>]>) -> Outcome {
    let (pool, table) = sequence(model, tokens.len());
    let mut start = 0;
    let mut logits = Vec::new();
    for end in cuts
        .iter()
        .copied()
        .chain([tokens.len()])
        .filter(|end| *end > 0)
    {
        logits = model
            .forward(&tokens[start..end], start, &pool, &table)
            .unwrap();
        if let Some(whole) = whole {
            assert!(
                bits(&logits) == bits(&whole[end - 1]),
                "logits of token {} after the cuts {cuts:?}",
                end - 1
            );
        }
        start = end;
    }
    Outcome {
        logits: bits(&logits),
        blocks: blocks(&pool, &table),
    }
}

fn whole(model: &Model, tokens: &[u32]) -> (Vec<Vec<f32>>, Outcome) {
    let (pool, table) = sequence(model, tokens.len());
    let all = model.forward_all(tokens, 0, &pool, &table).unwrap();
    let outcome = Outcome {
        logits: bits(&all[tokens.len() - 1]),
        blocks: blocks(&pool, &table),
    };
    (all, outcome)
}

fn splits(len: usize, random: u64) -> Vec<Vec<usize>> {
    let every = |step: usize| (step..len).step_by(step).collect::<Vec<_>>();
    let mut all = vec![
        vec![],
        every(1),
        every(7),
        every(32),
        every(63),
        every(64),
        every(65),
        every(128),
    ];
    all.extend([1, 2, 63, 64, 65, len - 1].map(|cut| vec![cut]));
    let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(9);
    for _ in 0..random {
        let mut cuts: Vec<usize> = (0..rng.random_range(1..8))
            .map(|_| rng.random_range(1..len))
            .collect();
        cuts.sort_unstable();
        cuts.dedup();
        all.push(cuts);
    }
    all
}

#[test]
fn tiny_models_do_not_see_how_the_prompt_was_cut() {
    for model in [
        TinyModel::new(Architecture::Llama, 1),
        TinyModel::new(Architecture::Qwen2, 1),
        TinyModel::new(Architecture::Qwen3, 1),
        TinyModel::wide(Architecture::Llama, 1, GgmlDType::Q4K),
    ] {
        let (_dir, _, loaded) = tiny(&model);
        let tokens = tokens(131, loaded.config().vocab_size, 4);
        let (all, expected) = whole(&loaded, &tokens);
        for cuts in splits(tokens.len(), 6) {
            assert!(
                run(&loaded, &tokens, &cuts, Some(&all)) == expected,
                "{:?} cut at {cuts:?}",
                model.architecture
            );
        }
    }
}

#[test]
fn no_format_of_keys_and_values_lets_a_model_see_how_the_prompt_was_cut() {
    for (model, kv) in [
        (
            TinyModel::wide(Architecture::Qwen3, 1, GgmlDType::Q8_0),
            "q8",
        ),
        (
            TinyModel::wide(Architecture::Llama, 1, GgmlDType::Q4_1),
            "q4",
        ),
        (
            TinyModel::wide(Architecture::Llama, 1, GgmlDType::Q4_1),
            "bf16/q8",
        ),
    ] {
        let (_dir, path, _) = tiny(&model);
        let loaded = load_in(&path, Team::new(2), kv.parse().unwrap());
        assert_eq!(loaded.info().kv_format, kv);
        let tokens = tokens(131, loaded.config().vocab_size, 4);
        let (all, expected) = whole(&loaded, &tokens);
        for cuts in splits(tokens.len(), 6) {
            let outcome = run(&loaded, &tokens, &cuts, Some(&all));
            assert!(outcome == expected, "{kv} cut at {cuts:?}");
        }
    }
}

#[test]
fn neither_the_number_of_threads_nor_the_instructions_matter() {
    for model in [
        TinyModel::new(Architecture::Qwen2, 1),
        TinyModel::wide(Architecture::Llama, 2, GgmlDType::Q6K),
        TinyModel::wide(Architecture::Llama, 2, GgmlDType::Q4_0),
    ] {
        let (_dir, path, loaded) = tiny(&model);
        let tokens = tokens(150, loaded.config().vocab_size, 5);
        let (all, expected) = whole(&loaded, &tokens);
        let teams = (1..=8).map(Team::new);
        for team in teams.chain(Path::available().into_iter().map(|path| Team::on(path, 2))) {
            let name = format!("{team:?}");
            let loaded = load_on(&path, team);
            for cuts in [vec![], vec![1], vec![64, 130], vec![10, 11, 12, 75]] {
                let outcome = run(&loaded, &tokens, &cuts, Some(&all));
                assert!(outcome == expected, "{name}, cut at {cuts:?}");
            }
        }
    }
}

#[test]
fn the_default_model_does_not_see_how_the_prompt_was_cut() {
    let tokens = tokens(130, default_model().config().vocab_size, 6);
    let expected = run(default_model(), &tokens, &[], None);
    for (threads, cuts) in [
        (1, vec![64, 128]),
        (2, vec![65, 66, 67, 129]),
        (3, vec![1, 40]),
    ] {
        let model = load_on(&default_model_path(), Team::new(threads));
        assert!(
            run(&model, &tokens, &cuts, None) == expected,
            "{threads} threads, cut at {cuts:?}"
        );
    }
}

#[test]
fn a_call_that_does_not_fit_is_refused_and_writes_nothing() {
    let (_dir, _, model) = tiny(&TinyModel {
        context_length: 128,
        ..TinyModel::new(Architecture::Llama, 1)
    });
    let (pool, table) = sequence(&model, 128);
    let before = blocks(&pool, &table);
    let vocab = model.config().vocab_size as u32;
    let long = vec![3; 129];
    for (tokens, offset, table) in [
        (&[][..], 0, &table[..]),
        (&[vocab][..], 0, &table[..]),
        (&long[..], 0, &table[..]),
        (&[3][..], 128, &table[..]),
        (&[3][..], usize::MAX, &table[..]),
        (&[3][..], 64, &table[..1]),
        (&[3][..], 0, &[99][..]),
    ] {
        assert!(matches!(
            model.forward(tokens, offset, &pool, table),
            Err(Error::Input(_))
        ));
    }
    assert!(blocks(&pool, &table) == before);
    let (_dir, _, other) = tiny(&TinyModel {
        num_layers: 1,
        ..TinyModel::new(Architecture::Llama, 1)
    });
    assert!(matches!(
        other.forward(&[3], 0, &pool, &table),
        Err(Error::Input(_))
    ));
}

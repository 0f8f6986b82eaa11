//! Tied and untied output heads, up to the logits.

use kipp::Scheme;
use kipp::artifact::Artifact;
use kipp::backend::cpu::{CpuBackend, CpuOptions};
use kipp::backend::oracle::OracleForward;
use kipp::kv::{KvPool, KvScheme};
use kipp::model::{Forward, Model, ModelOptions};
use kipp::perplexity::{Protocol, perplexity};
use kipp::session::Session;

use super::artifact::build::{self, Weight};

/// After these the best of these weights' logits leads by 1.6, so that no coding of them changes it.
const TOKENS: [u32; 7] = [28, 25, 32, 30, 29, 2, 12];

fn options() -> ModelOptions {
    ModelOptions::for_one_sequence(KvScheme::F32, 64, 8)
}

/// The CPU and the oracle over the same file.
fn both(artifact: &Artifact) -> [(&'static str, Box<dyn Forward>); 2] {
    let backend = CpuBackend::new(CpuOptions { threads: Some(1), ..CpuOptions::default() }).unwrap();
    let cpu = Model::load(artifact, artifact.spec().clone(), backend, options(), &mut |_, _| {}).unwrap();
    let oracle = OracleForward::new(artifact, artifact.spec().clone(), options());
    [("cpu", Box::new(cpu)), ("oracle", Box::new(oracle))]
}

/// The likeliest token after the last of `TOKENS`, on which both evaluators agree.
fn argmax(artifact: &Artifact) -> usize {
    let found = both(artifact).map(|(name, mut model)| {
        let pool = KvPool::new(model.kv_blocks());
        let logits = Session::new(&mut *model, &pool).append(&TOKENS).unwrap().to_vec();
        assert_eq!(logits.len(), build::VOCAB, "{name}");
        let best = (0..logits.len()).max_by(|a, b| logits[*a].total_cmp(&logits[*b])).unwrap();
        let second = (0..logits.len()).filter(|i| *i != best).map(|i| logits[i]).fold(f32::MIN, f32::max);
        assert!(logits[best] - second > 0.05, "{name}: a lead of {} shows nothing", logits[best] - second);
        best
    });
    assert_eq!(found[0], found[1]);
    found[0]
}

fn folder(tied: bool, weights: &[Weight]) -> Artifact {
    let folder = tempfile::tempdir().unwrap();
    build::write_folder(folder.path(), &build::config(tied), weights);
    Artifact::open(folder.path()).unwrap() // stays mapped after the folder is gone
}

fn gguf(weights: &[Weight], scheme: Scheme) -> Artifact {
    Artifact::from_vec(build::gguf(&build::metadata(), weights, scheme)).unwrap()
}

/// The head of its own is the embedding with its rows reversed, so the answers are mirrored.
#[test]
fn h15_the_logits_come_from_the_head_that_the_file_means() {
    let (without, with) = (build::weights(false), build::weights(true));
    let mirrored = |token: usize| build::VOCAB - 1 - token;
    // (a) tied, no head; (b) untied, a head; (d) tied, and a head that differs: the flag wins. (c), untied without a
    // head, is refused where the tensors are bound.
    let tied = argmax(&folder(true, &without));
    assert_ne!(tied, mirrored(tied));
    assert_eq!(argmax(&folder(false, &with)), mirrored(tied));
    assert_eq!(argmax(&folder(true, &with)), tied);
    // GGUF has no flag: a head that is there is meant. A coded embedding serves as a head like any other.
    for scheme in [Scheme::Bf16, Scheme::F32, Scheme::Q8_0, Scheme::Q4_0, Scheme::Q4_1] {
        let tied = argmax(&gguf(&without, scheme));
        assert_eq!(argmax(&gguf(&with, scheme)), mirrored(tied), "{}", scheme.name());
    }
    assert_eq!(argmax(&gguf(&without, Scheme::Bf16)), tied);
    assert_eq!(argmax(&gguf(&without, Scheme::Q8_0)), tied);
}

/// Uniform output is known by its perplexity: the width of the head.
#[test]
fn h15_all_zero_weights_give_a_perplexity_of_the_vocabulary_size() {
    let mut weights = build::weights(false);
    weights.iter_mut().for_each(|weight| weight.values.fill(0.0));
    for scheme in [Scheme::Bf16, Scheme::Q8_0, Scheme::Q4_1] {
        for (name, mut model) in both(&gguf(&weights, scheme)) {
            let pool = KvPool::new(model.kv_blocks());
            let found = perplexity(&mut *model, &pool, &TOKENS, Protocol::Windows { window: 4 }, &mut |_| {})
                .unwrap();
            let off = found.ppl / build::VOCAB as f64 - 1.0;
            assert!(off.abs() < 1e-12, "{name}, {}: {}", scheme.name(), found.ppl);
        }
    }
}

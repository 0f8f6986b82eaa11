//! The fault study: faults as they are made in paged attention and prefix reuse, injected by wrappers around the backend,
//! the model and the pool's user, and which gate catches which. A gate that catches nothing shows nothing; a fault that
//! no gate catches would reach a user.

mod backend;
mod checks;
mod forward;

use std::collections::BTreeMap;

use kipp::artifact::Artifact;
use kipp::backend::cpu::{CpuBackend, CpuOptions};
use kipp::gates::{self, Loader, Subject, Variant};
use kipp::kv::KvScheme;
use kipp::model::{Forward, Model, ModelOptions};
use serde_json::{Value, json};

use self::backend::FaultyBackend;
use self::forward::FaultyForward;
use crate::paths::repository;

/// Two layers, ten heads over two, small enough that every gate takes a moment.
const MODEL: &str = "testdata/odd/untied-10-over-2";

/// The record, written by `regenerate_faults`.
const RECORD: &str = "bench/results/faults.json";

/// One fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Nothing is wrong.
    Control,
    WrongReadBlock,
    WrongReadSlot,
    MissedRollover,
    KeysAndValuesSwapped,
    PositionsOffByOne,
    MaskOffByOne,
    WrongKvHead,
    WrongLayer,
    NeighboursTable,
    StaleTable,
    RollbackForgotten,
    LastRowLost,
    ZeroingForgotten,
    CopyForgotten,
    RowsSwapped,
    StaleOutputs,
    PublishedEarly,
    TokenTwice,
    /// None of the study, for it ends the program's thread: the third sequence of a step reads a block that no store has.
    NoSuchBlock,
}

use Fault::*;

/// The faults, and what each does.
const FAULTS: [(Fault, &str, &str); 18] = [
    (WrongReadBlock, "wrong read block", "attention reads the first block where the second is meant"),
    (WrongReadSlot, "wrong read slot", "each position is read one slot beside where it was written"),
    (MissedRollover, "missed block rollover", "the first position of a block is written into the one before"),
    (KeysAndValuesSwapped, "K and V swapped", "keys are stored as values and values as keys"),
    (PositionsOffByOne, "positions off by one", "chunks after the first are rotated one position too far"),
    (MaskOffByOne, "causal mask off by one", "each row attends to the position after its own"),
    (WrongKvHead, "GQA head mapped wrong", "query heads meet the key and value head of the other group"),
    (WrongLayer, "wrong layer", "attention reads the keys and values of the layer before"),
    (NeighboursTable, "neighbour's table", "two sequences of a step read each other's blocks"),
    (StaleTable, "stale table", "attention reads the block tables of the step before"),
    (RollbackForgotten, "rollback forgotten", "attention still sees positions that were rolled back"),
    (LastRowLost, "last row lost", "the last row of a chunk is written over the row before it"),
    (ZeroingForgotten, "zeroing forgotten", "blocks are handed out with what they held"),
    (CopyForgotten, "copy forgotten", "blocks that a step should copy first are not copied"),
    (RowsSwapped, "row maps swapped", "the first two answers of a step go to each other's row"),
    (StaleOutputs, "stale outputs", "a step returns the answers of the step before"),
    (PublishedEarly, "publication before completion", "a prompt is findable when its blocks are reserved"),
    (TokenTwice, "token twice after a hit", "after an adopted prefix its last token is evaluated again"),
];

fn loader<'a>(
    artifact: &'a Artifact,
    fault: Fault,
) -> impl Fn(Variant) -> Result<Box<dyn Forward>, kipp::model::LoadError> + 'a {
    move |variant| {
        let Variant { kv, kv_blocks, max_rows, activations, threads } = variant;
        let threads = threads.or(Some(1));
        let backend = CpuBackend::new(CpuOptions { threads, activations, ..CpuOptions::default() })?;
        let backend = FaultyBackend::new(backend, artifact.spec().n_kv_heads, fault);
        let options = ModelOptions { kv, kv_blocks, max_rows };
        let model = Model::load(artifact, artifact.spec().clone(), backend, options, &mut |_, _| {})?;
        Ok(Box::new(FaultyForward::new(Box::new(model), fault)))
    }
}

/// The study's model with a fault.
pub(crate) fn load(fault: Fault, variant: Variant) -> Box<dyn Forward> {
    loader(&Artifact::open(repository(MODEL)).unwrap(), fault)(variant).unwrap()
}

/// The gates and checks that fail, of how many.
fn caught_by(artifact: &Artifact, fault: Fault) -> (Vec<String>, usize) {
    let load = loader(artifact, fault);
    let load: &Loader<'_> = &load;
    let subject = Subject { artifact, spec: artifact.spec(), load, activations: None, kv: KvScheme::Bf16 };
    let mut verdicts: Vec<(String, bool)> = gates::run_model(&subject, None, &mut |_| {})
        .unwrap()
        .into_iter()
        .map(|gate| (gate.name, gate.passed))
        // Frozen bits catch whatever changes bits, on the classes that have them: they would hide what the others miss.
        .filter(|(name, _)| name != "fingerprint")
        .collect();
    verdicts.extend(checks::all(load, fault));
    let count = verdicts.len();
    (verdicts.into_iter().filter(|(_, passed)| !passed).map(|(name, _)| name).collect(), count)
}

fn study() -> Value {
    let artifact = Artifact::open(repository(MODEL)).unwrap();
    let (failed, gates) = caught_by(&artifact, Control);
    let mut faults = BTreeMap::new();
    for (fault, name, what) in FAULTS {
        let (caught_by, of) = caught_by(&artifact, fault);
        assert_eq!(of, gates, "{name}: a gate is missing");
        faults.insert(name, json!({ "what": what, "caught_by": caught_by }));
    }
    json!({
        "what": "Faults injected by wrappers outside the product, and the gates that catch each",
        "model": MODEL,
        "control": { "gates": gates, "failed": failed },
        "faults": faults,
    })
}

#[test]
fn every_fault_is_caught_and_the_control_is_not() {
    let found = study();
    assert_eq!(found["control"]["failed"], json!([]), "the control fails");
    for (name, fault) in found["faults"].as_object().unwrap() {
        assert_ne!(fault["caught_by"], json!([]), "nothing catches: {name}");
    }
    let record = std::fs::read_to_string(repository(RECORD)).unwrap();
    assert_eq!(found, serde_json::from_str::<Value>(&record).unwrap(), "the record is another");
}

/// Writes `bench/results/faults.json`.
#[test]
#[ignore = "rewrites the record; for a commit that adds faults or gates, or says why one catches less"]
fn regenerate_faults() {
    let json = serde_json::to_string_pretty(&study()).unwrap();
    std::fs::write(repository(RECORD), json + "\n").unwrap();
}

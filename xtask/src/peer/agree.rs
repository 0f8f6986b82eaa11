//! Teacher-forced over fixed ids, llama.cpp's choice is ours wherever it is sure of it.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail};

use crate::steps::{Context, Report};

use super::llama::Llama;
use super::{converted, folder, kipp, text};

/// Ids to be compared over, from the start of the reference text.
const POSITIONS: usize = 64;

/// Where llama.cpp's argmax leads by less (logits), its own rounding of activations and KV may decide; such positions
/// are counted, not compared.
const LEAD: f32 = 0.1;

/// Schemes of kipp-tiny on which both are asked.
const SCHEMES: &[&str] = &["bf16", "q8_0", "q4_0", "q4_1"];

pub(crate) fn step(context: &Context) -> Result<Report> {
    let llama = Llama::ready(context)?;
    let mut report = Report::default();
    let mut faults = Vec::new();
    for scheme in SCHEMES {
        let model = converted(context, scheme)?;
        let counts = compare(context, &llama, text(&model)?)?;
        report.say(format!("{scheme}: {}", counts.line()));
        if !counts.differ.is_empty() {
            faults.push(format!("{scheme}: {}\n{}", counts.line(), counts.differ.join("\n")));
        }
    }
    if !faults.is_empty() {
        bail!("{}", faults.join("\n"));
    }
    Ok(report)
}

/// How the positions of one model fell out.
#[derive(Default)]
struct Counts {
    agree: usize,
    /// Within [`LEAD`], same choice and another.
    close_same: usize,
    close_other: usize,
    /// One line for each position where llama.cpp is sure and we choose otherwise.
    differ: Vec<String>,
}

impl Counts {
    fn line(&self) -> String {
        let close = self.close_same + self.close_other;
        let (agree, differ, other) = (self.agree, self.differ.len(), self.close_other);
        format!(
            "{agree} agree, {differ} differ, {close} not compared (lead under {LEAD}), {other} of them differ"
        )
    }
}

fn compare(context: &Context, llama: &Llama, model: &str) -> Result<Counts> {
    let folder = folder(context);
    let ids = ids(&context.root.join("testdata/kipp-tiny/sampled.u32"))?;
    let (words, list) = (folder.join("ids.u32"), folder.join("ids.txt"));
    let bytes: Vec<u8> = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
    fs::write(&words, bytes).context("cannot write the ids")?;
    fs::write(&list, ids.iter().map(|id| format!("{id}\n")).collect::<String>())
        .context("cannot write the ids")?;
    let (theirs, ours) = (folder.join("theirs.f32"), folder.join("ours.f32"));
    llama.logits(context, model, text(&words)?, text(&theirs)?)?;
    kipp(context, &["logits", "--model", model, "--ids", text(&list)?, "-o", text(&ours)?, "--all"])?;
    count(&floats(&theirs)?, &floats(&ours)?)
}

/// Both are [POSITIONS, vocabulary].
fn count(theirs: &[f32], ours: &[f32]) -> Result<Counts> {
    if theirs.len() != ours.len() || theirs.is_empty() || !theirs.len().is_multiple_of(POSITIONS) {
        bail!("llama.cpp wrote {} logits and Kipp {}", theirs.len(), ours.len());
    }
    let vocabulary = theirs.len() / POSITIONS;
    let mut counts = Counts::default();
    for (position, (theirs, ours)) in theirs.chunks(vocabulary).zip(ours.chunks(vocabulary)).enumerate() {
        let (best, lead) = top(theirs);
        let (choice, _) = top(ours);
        match (lead > LEAD, best == choice) {
            (true, true) => counts.agree += 1,
            (true, false) => counts
                .differ
                .push(format!("position {position}: llama.cpp says {best} by {lead:.3}, Kipp says {choice}")),
            (false, true) => counts.close_same += 1,
            (false, false) => counts.close_other += 1,
        }
    }
    Ok(counts)
}

/// The argmax and its lead over the runner-up. Logits that are no numbers lead by nothing and are caught as a difference.
fn top(logits: &[f32]) -> (usize, f32) {
    let (mut best, mut first, mut second) = (usize::MAX, f32::NEG_INFINITY, f32::NEG_INFINITY);
    for (id, &logit) in logits.iter().enumerate() {
        if logit > first {
            (best, second, first) = (id, first, logit);
        } else if logit > second {
            second = logit;
        }
    }
    (best, first - second)
}

fn ids(path: &Path) -> Result<Vec<u32>> {
    let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let ids: Vec<u32> =
        bytes.as_chunks::<4>().0.iter().take(POSITIONS).map(|word| u32::from_le_bytes(*word)).collect();
    if ids.len() < POSITIONS {
        bail!("{} holds {} ids, {POSITIONS} are compared", path.display(), ids.len());
    }
    Ok(ids)
}

fn floats(path: &Path) -> Result<Vec<f32>> {
    let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(bytes.as_chunks::<4>().0.iter().map(|word| f32::from_le_bytes(*word)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_sure_choice_is_compared() -> Result<()> {
        let mut theirs = [0.0, 1.0, 0.5].repeat(POSITIONS);
        theirs[1] = 0.55;
        let mut ours = [0.0, 2.0, 0.5].repeat(POSITIONS);
        ours[2] = 3.0;
        ours[4] = -1.0;
        let counts = count(&theirs, &ours)?;
        assert_eq!(counts.line(), "62 agree, 1 differ, 1 not compared (lead under 0.1), 1 of them differ");
        assert_eq!(counts.differ, ["position 1: llama.cpp says 1 by 0.500, Kipp says 2"]);
        assert!(count(&theirs, &ours[3..]).is_err());
        Ok(())
    }
}

//! One step: the rows of every sequence are planned, written into one batch, and run.

use std::collections::BTreeSet;
use std::ops::Range;
use std::time::Instant;

use super::event::{RequestFailure, RequestId};
use super::sequence::Sequence;
use super::settle::Scheduled;
use super::stats::StepReport;
use super::{Engine, LOGIT_ROWS, Role, Running, masking, scheduler};
use crate::backend::BackendError;
use crate::batch::{Ask, Batch};
use crate::token::TokenId;

impl Engine {
    /// A step, panics and all.
    pub(super) fn advance(&mut self) -> StepReport {
        let began = self.clock.now();
        self.end_slow_constraints();
        self.grow();
        self.propose();
        let mut report = StepReport::default();
        for Running { sequence, .. } in self.running.iter().filter(|running| running.role == Role::Decodes) {
            report.decode_rows += 1;
            report.draft_rows += sequence.draft.len();
        }
        let answers = report.decode_rows + report.draft_rows;
        let allowance = self.pace.prefill_tokens(answers, self.step_tokens);
        self.admit(allowance);
        let rows = self.plan(allowance, answers);
        let (batch, scheduled) = self.assemble(&rows);
        let ready = self.clock.now();
        report.prefill_rows = batch.tokens.len() - answers;
        if batch.tokens.is_empty() {
            self.await_constraint();
        } else {
            match self.run_batch(&batch, &scheduled) {
                Ok(()) => self.settle(&scheduled),
                Err(error) => self.fail_step(&scheduled, error),
            }
        }
        self.drop_closed();
        let now = self.clock.now();
        report.duration = now.saturating_sub(began);
        if report.prefill_rows == 0 {
            self.costs.observe(answers, now.saturating_sub(ready).as_secs_f64());
        }
        if report.rows() > 0 {
            self.counts.steps += 1;
            self.counts.step_times.add(report.duration);
            self.pace.measured(&report);
        }
        report
    }

    /// The rows of each running sequence in this step, `answers` of them being taken by those that decode.
    fn plan(&self, allowance_tokens: usize, answers: usize) -> Vec<usize> {
        let shares = scheduler::share(allowance_tokens, &self.left_of_prompts());
        let mut shares = shares.into_iter();
        // One at least, so that a prompt that is scored gets on.
        let mut scored_rows = LOGIT_ROWS.saturating_sub(answers).max(1);
        let rows = self.running.iter().map(|Running { sequence, role, .. }| {
            match role {
                Role::Decodes => return 1 + sequence.draft.len(),
                Role::SitsOut => return 0,
                Role::Prefills => {}
            }
            let share = shares.next().unwrap_or(0);
            if !self.scores_by_logits(sequence) {
                return share;
            }
            let share = share.min(scored_rows);
            scored_rows -= share;
            share
        });
        rows.collect()
    }

    /// Whether rows of the prompt that are still to be evaluated are asked for all their logits.
    fn scores_by_logits(&self, sequence: &Sequence) -> bool {
        let top = self.live.get(&sequence.request).and_then(|live| live.prompt_logprobs);
        top.is_some_and(|top| top > 0) && sequence.left_prompt_tokens() > 0
    }

    /// Writes the batch, sequences in the order of their age.
    fn assemble(&mut self, rows: &[usize]) -> (Batch, Vec<Scheduled>) {
        let mut batch = Batch::default();
        let mut scheduled = Vec::new();
        for (index, (Running { sequence, held, .. }, rows)) in self.running.iter_mut().zip(rows).enumerate() {
            if *rows == 0 {
                continue;
            }
            batch.zero.append(&mut held.zero);
            batch.copy.append(&mut held.copy);
            let start = sequence.computed_tokens;
            let first = batch.tokens.len();
            let Some(live) = self.live.get(&sequence.request) else { continue };
            let samples = live.terms.max_tokens > 0;
            let asks = asks(sequence, start..start + rows, live.prompt_logprobs, samples);
            let tokens = sequence.tokens.iter().chain(&sequence.draft).skip(start).take(*rows);
            let tokens: Vec<TokenId> = tokens.copied().collect();
            batch.push(&tokens, start, held.table.blocks(), Ask::Nothing);
            batch.asks[first..].copy_from_slice(&asks);
            scheduled.push(Scheduled { index, request: sequence.request, rows: first..first + rows });
        }
        (batch, scheduled)
    }

    /// Runs the batch. What constraints allow next is found at the same time.
    fn run_batch(&mut self, batch: &Batch, scheduled: &[Scheduled]) -> Result<(), BackendError> {
        let Engine { forward, outputs, running, masks, .. } = self;
        outputs.answers.clear();
        scheduled.iter().for_each(|one| running[one.index].sequence.ask_constraints(masks));
        forward.submit(batch)?;
        forward.wait(outputs)
    }

    /// Ends the requests whose constraints take too long.
    fn end_slow_constraints(&mut self) {
        let running = self.running.iter_mut().map(|running| &mut running.sequence);
        let sequences = running.chain(&mut self.waiting);
        let slow = sequences.filter_map(|sequence| sequence.exceeds_limit().then_some(sequence.request));
        let slow: BTreeSet<RequestId> = slow.collect();
        slow.into_iter().for_each(|id| self.fail(id, masking::too_slow()));
    }

    /// Nothing could be done: waits a little for a constraint that somebody sits out for.
    fn await_constraint(&mut self) {
        let mut sitting = self.running.iter_mut().filter(|running| running.role == Role::SitsOut);
        if let Some(running) = sitting.next() {
            running.sequence.await_constraints(Instant::now() + masking::PATIENCE);
        }
    }

    /// Ends the requests that were part of a step that failed, and no others. Where somebody gave the step up, they are
    /// told to be cancelled. Their blocks return to the pool, and nothing that the step wrote can be found.
    fn fail_step(&mut self, scheduled: &[Scheduled], error: BackendError) {
        let requests: BTreeSet<RequestId> = scheduled.iter().map(|one| one.request).collect();
        requests.into_iter().for_each(|id| match &error {
            BackendError::Interrupted => self.cancel(id),
            error => self.fail(id, RequestFailure::Backend(error.clone())),
        });
    }

    /// Ends the requests whose sinks want no more.
    fn drop_closed(&mut self) {
        let closed: Vec<RequestId> =
            self.live.iter().filter(|(_, live)| live.is_closed()).map(|(id, _)| *id).collect();
        closed.into_iter().for_each(|id| self.cancel(id));
    }
}

/// What the rows of a sequence at these positions are asked for.
fn asks(sequence: &Sequence, positions: Range<usize>, scores: Option<usize>, samples: bool) -> Vec<Ask> {
    let ask = |position: usize| {
        let next = position + 1;
        match scores {
            Some(top) if next < sequence.prompt_tokens && position >= sequence.scored_tokens => match top {
                0 => Ask::LogProb(sequence.tokens[next]),
                _ => Ask::Logits,
            },
            _ if samples && next >= sequence.tokens.len() => Ask::Logits,
            _ => Ask::Nothing,
        }
    };
    positions.map(ask).collect()
}

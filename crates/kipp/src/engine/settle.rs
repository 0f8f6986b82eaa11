//! After a step: rows of logits become tokens, blocks become findable, choices begin and end, sinks are told.
//!
//! A drafted token is accepted where the sampler, which draws by seed, choice and position, has chosen the same one; the
//! row after it then stands for the next position. The first row that chooses otherwise ends the walk, and what was
//! written for later rows is taken back.

use std::iter::once;
use std::mem::take;
use std::ops::Range;
use std::time::{Duration, Instant};

use super::completion::{Completion, Step, score};
use super::event::{FinishReason, GeneratedToken, RequestFailure, RequestId, TokenScore};
use super::live::Live;
use super::sequence::{Held, Sequence};
use super::{Engine, Role, Running, masking};
use crate::batch::Answer;
use crate::sampling::TokenLogProb;
use crate::sampling::constraint::MaskWorker;

/// A sequence in a step.
pub(super) struct Scheduled {
    /// Its place among those that run.
    pub(super) index: usize,
    pub(super) request: RequestId,
    /// Its rows in the batch.
    pub(super) rows: Range<usize>,
}

/// What is to be changed among the sequences when all of them have been looked at.
#[derive(Default)]
struct Changes {
    /// Places of sequences that ended.
    ended: Vec<usize>,
    /// Choices that begin, with blocks.
    begun: Vec<Running>,
    /// Choices that begin, without.
    waiting: Vec<Sequence>,
    failed: Vec<(RequestId, RequestFailure)>,
}

impl Engine {
    /// Takes the answers of a step that has completed.
    pub(super) fn settle(&mut self, scheduled: &[Scheduled]) {
        let mut answers = take(&mut self.outputs.answers).into_iter().peekable();
        let mut changes = Changes::default();
        let until = Instant::now() + masking::PATIENCE;
        for one in scheduled {
            let mut mine = Vec::new();
            while let Some(answer) = answers.next_if(|(row, _)| *row < one.rows.end) {
                mine.push(answer);
            }
            if let Err(failure) = self.settle_one(one, mine, until, &mut changes) {
                changes.failed.push((one.request, failure));
            }
        }
        self.apply(changes);
    }

    fn apply(&mut self, changes: Changes) {
        // From the back, so that places stay what they are.
        for index in changes.ended.into_iter().rev() {
            self.running.remove(index);
        }
        for begun in changes.begun {
            if self.running.len() < self.max_sequences {
                self.run(begun);
            } else {
                self.wait(begun.sequence);
            }
        }
        changes.waiting.into_iter().for_each(|sequence| self.wait(sequence));
        changes.failed.into_iter().for_each(|(id, failure)| self.fail(id, failure));
        let complete: Vec<RequestId> =
            self.live.iter().filter(|(_, live)| live.is_complete()).map(|(id, _)| *id).collect();
        for id in complete {
            self.live.remove(&id);
            self.counts.finished_requests += 1;
        }
    }

    fn settle_one(
        &mut self,
        one: &Scheduled,
        answers: Vec<(usize, Answer)>,
        until: Instant,
        changes: &mut Changes,
    ) -> Result<(), RequestFailure> {
        let now = self.clock.now();
        let valid_tokens = self.limits.valid_tokens;
        let running = &mut self.running[one.index];
        let Some(live) = self.live.get_mut(&one.request) else { return Ok(()) };
        if running.role == Role::Prefills {
            let rest = running.sequence.evaluated(one, answers, live, valid_tokens)?;
            if running.sequence.left_tokens() > 0 {
                running.publish();
                return Ok(());
            }
            // The last row was evaluated like the single row of a sequence that decodes.
            running.sequence.computed_tokens -= 1;
            if running.is_late(until) {
                running.publish();
                return running.sit_out(&self.masks);
            }
            if running.sequence.completion.n_tokens == 0 {
                let begun = begin(one, running, live, rest, now)?;
                self.counts.generated_tokens += begun.n_tokens;
                changes.add(begun, one.index);
                return Ok(());
            }
            return self.continue_one(one, rest, now, changes);
        }
        if running.is_late(until) {
            return running.sit_out(&self.masks);
        }
        self.continue_one(one, answers, now, changes)
    }

    /// A sequence whose last token was evaluated, drafts perhaps after it.
    fn continue_one(
        &mut self,
        one: &Scheduled,
        answers: Vec<(usize, Answer)>,
        now: Duration,
        changes: &mut Changes,
    ) -> Result<(), RequestFailure> {
        let running = &mut self.running[one.index];
        let Some(live) = self.live.get_mut(&one.request) else { return Ok(()) };
        let drafted = running.sequence.draft.len();
        let asked = one.rows.end - 1 - drafted..one.rows.end;
        let progress = go_on(&mut running.sequence, logits_of(asked, answers)?)?;
        if running.role == Role::Decodes {
            running.sequence.completion.note_draft(drafted, progress.accepted);
        }
        if drafted > 0 {
            self.counts.drafted_tokens += drafted as u64;
            self.counts.accepted_tokens += progress.accepted as u64;
            running.take_back()?;
        }
        running.publish();
        self.counts.generated_tokens += progress.tokens.len() as u64;
        if tell(live, &mut running.sequence.completion, progress, now) {
            changes.ended.push(one.index);
        }
        Ok(())
    }
}

impl Changes {
    fn add(&mut self, begun: Begun, index: usize) {
        if begun.all_ended {
            self.ended.push(index);
        }
        self.begun.extend(begun.running);
        self.waiting.extend(begun.waiting);
    }
}

impl Running {
    /// Makes what was accepted findable.
    fn publish(&mut self) {
        let Running { sequence, held, .. } = self;
        held.table.publish(&sequence.tokens[..sequence.computed_tokens]);
    }

    /// Whether what its constraints allow next is not known at `until`.
    fn is_late(&mut self, until: Instant) -> bool {
        !self.sequence.await_constraints(until)
    }

    /// Lets others go on until its constraints have answered. Its last row is evaluated again then, to the same bits.
    fn sit_out(&mut self, masks: &MaskWorker) -> Result<(), RequestFailure> {
        self.role = Role::SitsOut;
        masks.stand_in();
        match take(&mut self.sequence.draft).is_empty() {
            true => Ok(()),
            false => self.take_back(),
        }
    }

    /// Gives up what was written for drafts that were not accepted.
    fn take_back(&mut self) -> Result<(), RequestFailure> {
        let Running { sequence, held, .. } = self;
        held.copy.extend(held.table.truncate(sequence.computed_tokens)?);
        Ok(())
    }
}

impl Sequence {
    /// Takes the rows of a step that evaluated a part of what was left. What the scores of the prompt did not need of
    /// the answers is handed back.
    fn evaluated(
        &mut self,
        one: &Scheduled,
        answers: Vec<(usize, Answer)>,
        live: &mut Live,
        valid_tokens: usize,
    ) -> Result<Vec<(usize, Answer)>, RequestFailure> {
        let start = self.computed_tokens;
        self.computed_tokens += one.rows.len();
        live.evaluated_to(self.computed_tokens.min(self.prompt_tokens));
        let Some(top) = live.prompt_logprobs else { return Ok(answers) };
        let mut rest = Vec::new();
        for (row, answer) in answers {
            let position = start + row - one.rows.start;
            if position != self.scored_tokens || position + 1 >= self.prompt_tokens {
                rest.push((row, answer));
                continue;
            }
            let id = self.tokens[position + 1];
            let score = match answer {
                Answer::LogProb(log_prob) => {
                    TokenScore { token: TokenLogProb { id, log_prob }, top: Vec::new() }
                }
                Answer::Logits(logits) => score(&logits, id, top, valid_tokens),
                _ => return Err(RequestFailure::NoAnswer { row }),
            };
            if score.token.log_prob.is_nan() {
                return Err(RequestFailure::Score { position: position + 1 });
            }
            self.scores.push(score);
            self.scored_tokens += 1;
        }
        Ok(rest)
    }

    /// Another choice of the request, which stands where this one stands at the end of the prompt.
    fn other(&self, completion: Completion) -> Sequence {
        Sequence {
            request: self.request,
            completion,
            tokens: self.tokens.clone(),
            prompt_tokens: self.prompt_tokens,
            computed_tokens: self.computed_tokens,
            draft: Vec::new(),
            others: Vec::new(),
            scored_tokens: self.scored_tokens,
            scores: Vec::new(),
        }
    }
}

/// The logits of exactly these rows.
fn logits_of(rows: Range<usize>, answers: Vec<(usize, Answer)>) -> Result<Vec<Vec<f32>>, RequestFailure> {
    let mut answers = answers.into_iter();
    let row = |row: usize| match answers.next() {
        Some((found, Answer::Logits(logits))) if found == row => Ok(logits),
        _ => Err(RequestFailure::NoAnswer { row }),
    };
    rows.map(row).collect()
}

/// What a sequence has brought.
struct Progress {
    tokens: Vec<GeneratedToken>,
    /// Drafted tokens among them.
    accepted: usize,
    finish: Option<FinishReason>,
}

/// Chooses a token from each row while the row before has chosen what was drafted. `rows` are the logits after the last
/// token and after each drafted one.
fn go_on(sequence: &mut Sequence, rows: Vec<Vec<f32>>) -> Result<Progress, RequestFailure> {
    let Sequence { completion, tokens, draft, computed_tokens, .. } = sequence;
    let draft = take(draft);
    let mut progress = Progress { tokens: Vec::new(), accepted: 0, finish: None };
    let mut unseen = 0;
    for (index, mut logits) in rows.into_iter().enumerate() {
        let chosen = completion.choose(&mut logits)?;
        let id = chosen.id;
        match completion.accept(chosen)? {
            Step::End => progress.finish = Some(FinishReason::Stop),
            Step::Token(token, finish) => {
                tokens.push(id);
                progress.tokens.push(token);
                progress.accepted += usize::from(draft.get(index) == Some(&id));
                progress.finish = finish;
            }
        }
        if progress.finish.is_some() || draft.get(index) != Some(&id) {
            break;
        }
        if !completion.can_choose() {
            // The constraint did not look past this drafted token, which is left to be evaluated again.
            unseen = 1;
            break;
        }
    }
    *computed_tokens += 1 + progress.accepted - unseen;
    Ok(progress)
}

/// Tells the sink; whether the choice has ended.
fn tell(live: &mut Live, completion: &mut Completion, progress: Progress, now: Duration) -> bool {
    live.tell_tokens(completion.choice, progress.tokens);
    if let Some(reason) = progress.finish {
        live.finish(completion, reason, now);
    }
    progress.finish.is_some()
}

/// What becomes of a request when its prompt is evaluated.
struct Begun {
    /// Choices with blocks, but for the one that keeps those of the prompt.
    running: Vec<Running>,
    /// Choices that found no block.
    waiting: Vec<Sequence>,
    /// No choice keeps the blocks of the prompt.
    all_ended: bool,
    n_tokens: u64,
}

/// Begins every choice of a request: the first token of each comes from the one row after the prompt. The first choice
/// that goes on keeps the table, the others fork it: a fork's source then belongs to a sequence that runs, and is older.
fn begin(
    one: &Scheduled,
    running: &mut Running,
    live: &mut Live,
    answers: Vec<(usize, Answer)>,
    now: Duration,
) -> Result<Begun, RequestFailure> {
    let Running { sequence, held, .. } = running;
    let max_tokens = live.terms.max_tokens;
    let asked = one.rows.end - usize::from(max_tokens > 0)..one.rows.end;
    let rows = logits_of(asked, answers)?;
    let first = |sequence: &mut Sequence, rows| {
        let progress = go_on(sequence, rows)?;
        Ok(match max_tokens {
            0 => Progress { finish: Some(FinishReason::Length), ..progress },
            _ => progress,
        })
    };
    let others = take(&mut sequence.others);
    let mut others: Vec<Sequence> = others.into_iter().map(|completion| sequence.other(completion)).collect();
    let of_others = others.iter_mut().map(|other| first(other, rows.clone()));
    let of_others = of_others.collect::<Result<Vec<Progress>, RequestFailure>>()?;
    let progress = first(sequence, rows)?;
    held.table.publish(&sequence.tokens[..sequence.computed_tokens]);

    live.begin_answers(now, take(&mut sequence.scores));
    let tokens = once(&progress).chain(&of_others).map(|progress| progress.tokens.len() as u64);
    let n_tokens = tokens.sum();
    let ended = tell(live, &mut sequence.completion, progress, now);
    let mut going = Vec::new();
    for (mut other, progress) in others.into_iter().zip(of_others) {
        if !tell(live, &mut other.completion, progress, now) {
            going.push(other);
        }
    }
    let mut going = going.into_iter();
    let heir = if ended { going.next() } else { None };
    let mut begun =
        Begun { running: Vec::new(), waiting: Vec::new(), all_ended: ended && heir.is_none(), n_tokens };
    if let Some(heir) = heir {
        *sequence = heir;
    }
    for other in going {
        match held.table.fork(other.computed_tokens) {
            Ok((table, copy)) => {
                let held = Held { copy: copy.into_iter().collect(), ..Held::new(table) };
                begun.running.push(Running { sequence: other, held, role: Role::Prefills });
            }
            Err(_) => begun.waiting.push(other),
        }
    }
    Ok(begun)
}

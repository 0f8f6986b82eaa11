//! From a template's source to a program in which nothing walks through a container that was not paid for.
//!
//! The engine charges its steps and the size of each new value, but not the walk through what a value holds:
//! a list doubled sixty times is sixty steps to build and 2^60 to print, compare or hash. So the compiled
//! program is rewritten. Why it is bounded then:
//! 1. Lists, tuples and maps hold only data (texts, numbers, such containers), never a namespace or a lazy
//!    sequence, and none changes once built: no cycle exists, and visiting one item costs a bounded amount.
//! 2. Before an instruction that may walk a value, a guard walks it and takes fuel for each node and each 64
//!    bytes, and refuses more than 128 levels; what the instruction then does costs no more than what was paid.
//! 3. What may be called is a list of filters, tests and functions of which each one's cost is known; the rest,
//!    and the constructs that the guards cannot see (`**kwargs`, `*args`, recursive loops, `autoescape`), is refused.
//! 4. Before the parser recurses and folds constants, a tag's length and its `*` with lists are bounded.
//!
//! `guard` and `filter` have the guards.

use minijinja::machinery::{CodeGenerator, Instruction, Instructions, Token, parse, tokenize};
use minijinja::syntax::SyntaxConfig;
use minijinja::{Error, Value};

use super::error::ChatError;
use super::{filter, guard};

/// Tokens of one tag; the longest of real templates have 60. The parser builds a tree as deep as an operator
/// chain is long, and descends it by recursion.
const MAX_TAG_TOKENS: usize = 1024;
/// `elif` of a whole template: each is a level of recursion. Real templates have 20.
const MAX_ELIFS: usize = 512;
/// Assignments to attributes: the engine lists a namespace's attributes to tell whether it has any.
const MAX_ATTRIBUTES: usize = 1024;
/// Up to this length a constant is not worth paying for.
const SHORT_BYTES: usize = 64;
/// The engine's flag of `for ... recursive`.
const RECURSIVE_LOOP: u8 = 2;

/// Compiles a template, with its guards.
pub(super) fn compile(source: &str, syntax: SyntaxConfig) -> Result<Instructions<'_>, ChatError> {
    check_tags(source, syntax.clone())?;
    let from_engine = |error: Error| ChatError::from_engine(&error, 0, 0);
    let tree = parse(source, "<chat template>", syntax).map_err(from_engine)?;
    let mut generator = CodeGenerator::new("<chat template>", source);
    generator.compile_stmt(&tree);
    guarded(&generator.finish().0, source)
}

/// What the parser must not see.
fn check_tags(source: &str, syntax: SyntaxConfig) -> Result<(), ChatError> {
    let (mut tag, mut elifs) = (Tag::default(), 0);
    for token in tokenize(source, false, syntax) {
        // The parser will say it better.
        let Ok((token, span)) = token else { return Ok(()) };
        elifs += usize::from(matches!(token, Token::Ident("elif")));
        tag.see(&token);
        let construct = match () {
            () if tag.tokens > MAX_TAG_TOKENS => "a tag of more than 1024 tokens",
            () if elifs > MAX_ELIFS => "more than 512 elif",
            // `[1] * 99999999` would be folded, and then printed or compared, while compiling.
            () if tag.multiplies && tag.has_list => "`*` and a list in one tag",
            () => continue,
        };
        return Err(ChatError::Unbounded { line: usize::from(span.start_line), construct });
    }
    Ok(())
}

/// One tag, token by token.
#[derive(Default)]
struct Tag {
    tokens: usize,
    multiplies: bool,
    /// Whether there may be a list in brackets: one that is surely an index is none.
    has_list: bool,
    /// Whether the last token is a name, whatever it means.
    after_name: bool,
    /// Whether a bracket now is surely an index: after a variable, an attribute or a closing bracket.
    after_value: bool,
}

impl Tag {
    fn see(&mut self, token: &Token<'_>) {
        const OPERATORS: [&str; 7] = ["and", "or", "not", "in", "is", "if", "else"];
        let mut is_name = false;
        match token {
            Token::VariableStart | Token::BlockStart => *self = Self::default(),
            Token::Mul => self.multiplies = true,
            Token::BracketOpen => self.has_list |= !self.after_value,
            Token::Ident(_) => is_name = true,
            _ => {}
        }
        // A name after a name, or first in a block, may be a keyword or a test.
        self.after_value = match token {
            Token::Ident(name) => !self.after_name && !OPERATORS.contains(name),
            Token::BracketClose | Token::ParenClose => true,
            _ => false,
        };
        self.after_name = is_name || matches!(token, Token::BlockStart);
        self.tokens += 1;
    }
}

/// The instructions with the guards between them.
fn guarded<'source>(
    plain: &Instructions<'source>,
    source: &'source str,
) -> Result<Instructions<'source>, ChatError> {
    let plain_code: Vec<&Instruction<'source>> = (0..).map_while(|at| plain.get(at)).collect();
    let mut targets = vec![false; plain_code.len() + 1];
    for instruction in &plain_code {
        if let Some(seen) = jump_target(instruction).and_then(|to| targets.get_mut(to as usize)) {
            *seen = true;
        }
    }
    let mut code =
        Code { out: Instructions::new("<chat template>", source), next: 0, line: 0, attributes: 0 };
    let mut moved_to = Vec::with_capacity(targets.len());
    for (at, instruction) in plain_code.iter().enumerate() {
        let line = plain.get_line(at as u32).unwrap_or(0);
        code.line = u16::try_from(line).unwrap_or(u16::MAX);
        moved_to.push(code.next);
        // What is on top of the stack for certain: no jump comes in between.
        let top = match at.checked_sub(1).map(|before| plain_code[before]) {
            Some(Instruction::LoadConst(value)) if !targets[at] => Some(value),
            _ => None,
        };
        code.add_guarded(instruction, top).map_err(|construct| ChatError::Unbounded { line, construct })?;
    }
    moved_to.push(code.next);
    code.move_jumps(&moved_to);
    Ok(code.out)
}

/// Where an instruction may jump to.
fn jump_target(instruction: &Instruction<'_>) -> Option<u32> {
    match instruction {
        Instruction::Iterate(to)
        | Instruction::Jump(to)
        | Instruction::JumpIfFalse(to)
        | Instruction::JumpIfFalseOrPop(to)
        | Instruction::JumpIfTrueOrPop(to)
        | Instruction::BuildMacro(_, to, _) => Some(*to),
        _ => None,
    }
}

/// A program under construction.
struct Code<'source> {
    out: Instructions<'source>,
    /// The place of the next instruction.
    next: u32,
    line: u16,
    /// Assignments to attributes so far.
    attributes: usize,
}

impl<'source> Code<'source> {
    fn add(&mut self, instruction: Instruction<'source>) {
        self.out.add_with_line(instruction, self.line);
        self.next += 1;
    }

    /// A guard is a filter on the top of the stack. No template can spell its name.
    fn guard(&mut self, name: &'static str) {
        // `!0`: looked up by name each time; the engine's cache is by the template's own names.
        self.add(Instruction::ApplyFilter(name, Some(1), !0));
    }

    /// A guard of the value below the top of the stack.
    fn guard_below(&mut self, name: &'static str) {
        self.add(Instruction::Swap);
        self.guard(name);
        self.add(Instruction::Swap);
    }

    /// A guard of the top `count` values, as one list that it gives back reversed.
    fn guard_all(&mut self, name: &'static str, count: usize) {
        self.add(Instruction::BuildList(Some(count)));
        self.guard(name);
        self.add(Instruction::UnpackList(count));
    }

    /// A filter or test that there is not, or not here.
    fn unknown(&mut self, guard: &'static str, name: &'source str, count: u16) {
        self.add(Instruction::LoadConst(Value::from(name)));
        self.add(Instruction::ApplyFilter(guard, Some(count + 1), !0));
    }

    /// Adds an instruction with its guards, or names what is refused. `top` is the constant on top of the stack.
    fn add_guarded(
        &mut self,
        instruction: &Instruction<'source>,
        top: Option<&Value>,
    ) -> Result<(), &'static str> {
        use Instruction as I;
        let plain = instruction.clone();
        match instruction {
            I::MergeKwargs(_)
            | I::UnpackLists(_)
            | I::ApplyFilter(_, None, _)
            | I::PerformTest(_, None, _) => {
                return Err("`*` or `**` before an argument");
            }
            I::CallFunction(_, None) | I::CallMethod(_, None) | I::CallObject(None) => {
                return Err("`*` or `**` before an argument");
            }
            I::PushAutoEscape => return Err("`autoescape`"),
            I::PushLoop(flags) if flags & RECURSIVE_LOOP != 0 => return Err("a recursive loop"),
            // The engine divides by their number.
            I::CallMethod("cycle", Some(0 | 1)) => return Err("`cycle` without values"),
            I::LoadConst(value) => self.add(I::LoadConst(guard::settled_constant(value))),
            I::EmitRaw(text) => {
                self.add(I::LoadConst(Value::from(*text)));
                self.add(I::Emit);
            }
            I::BuildMap(pairs) => {
                self.add(I::BuildList(Some(pairs * 2)));
                self.guard(guard::MAP);
            }
            I::BuildList(_) | I::BuildTuple(_) => {
                self.add(plain);
                self.guard(guard::ITEMS);
            }
            I::SetAttr(_) if self.attributes == MAX_ATTRIBUTES => {
                return Err("more than 1024 assignments to attributes");
            }
            I::SetAttr(_) => {
                self.attributes += 1;
                self.guard_below(guard::DATA);
                self.add(plain);
            }
            I::GetItem => self.get_item(top),
            I::Slice => {
                self.guard_all(guard::SLICED, 4);
                self.add(plain);
                self.guard(guard::SETTLE);
            }
            I::PushLoop(_) => {
                self.guard(guard::LENGTH);
                self.add(plain);
            }
            I::Add | I::Mul | I::CallFunction(..) | I::CallObject(_) => {
                self.add(plain);
                self.guard(guard::SETTLE);
            }
            I::CallMethod(name, Some(count)) => {
                let guard = if guard::STRIPS.contains(name) { guard::STRIP_ARGS } else { guard::METHOD_ARGS };
                self.guard_all(if *name == "format" { guard::FORMAT } else { guard }, usize::from(*count));
                self.add(plain);
                self.guard(guard::SETTLE);
            }
            I::StringConcat | I::CompareAndPreserve(_) => self.operands(top, plain, false),
            I::Eq | I::Ne | I::Gt | I::Gte | I::Lt | I::Lte => self.operands(top, plain, is_short(top)),
            I::In => self.contains(top),
            I::ApplyFilter(name, Some(count), id) => match filter::guard_of(name) {
                // The guard calls the filter; the cache of names is as good for it.
                Some(guard) => self.add(I::ApplyFilter(guard, Some(*count), *id)),
                None => self.unknown(guard::UNKNOWN_FILTER, name, *count),
            },
            I::PerformTest(name, Some(count), _) => match guard::test(name) {
                Some(guard::Test::Constant) => self.add(plain),
                Some(guard::Test::Reading) => {
                    self.guard_all(guard::TEST_ARGS, usize::from(*count));
                    self.add(plain);
                }
                None => self.unknown(guard::UNKNOWN_TEST, name, *count),
            },
            _ => self.add(plain),
        }
        Ok(())
    }

    /// Both operands are read, unless `free`.
    fn operands(&mut self, top: Option<&Value>, operator: Instruction<'source>, free: bool) {
        if !free {
            if !is_short(top) {
                self.guard(guard::READ);
            }
            self.guard_below(guard::READ);
        }
        self.add(operator);
    }

    /// The container is on top. An item of a short list is compared no further than the list is long.
    fn contains(&mut self, top: Option<&Value>) {
        if top.is_none_or(|list| list.downcast_object_ref::<Vec<Value>>().is_none()) {
            self.guard(guard::CONTAINER);
            self.guard_below(guard::READ);
        }
        self.add(Instruction::In);
    }

    /// The key is on top, and is compared; a text is counted through to a place far away or from its end.
    fn get_item(&mut self, top: Option<&Value>) {
        if !is_short(top) {
            self.guard(guard::READ);
        }
        let near = top.and_then(Value::as_i64).is_some_and(|index| (0..64).contains(&index));
        if !near && top.is_none_or(|key| key.as_str().is_none()) {
            self.guard_below(guard::TEXT);
        }
        self.add(Instruction::GetItem);
    }

    fn move_jumps(&mut self, moved_to: &[u32]) {
        for at in 0..self.next {
            if let Some(
                Instruction::Iterate(to)
                | Instruction::Jump(to)
                | Instruction::JumpIfFalse(to)
                | Instruction::JumpIfFalseOrPop(to)
                | Instruction::JumpIfTrueOrPop(to)
                | Instruction::BuildMacro(_, to, _),
            ) = self.out.get_mut(at)
                && let Some(moved) = moved_to.get(*to as usize)
            {
                *to = *moved;
            }
        }
    }
}

/// Whether this is a constant not worth paying for.
fn is_short(top: Option<&Value>) -> bool {
    top.is_some_and(|value| {
        value.as_object().is_none() && value.as_str().is_none_or(|text| text.len() <= SHORT_BYTES)
    })
}

//! A parsed module: its kernels, decoded once.

use std::collections::HashMap;

use crate::decode::Decoder;
use crate::op::Instruction;
use crate::text::{Cursor, Piece, Statement, number, without_comments};
use crate::types::Type;
use crate::{Error, Result};

/// Kernels of one PTX text.
#[derive(Debug)]
pub struct Module {
    /// Bytes of `.const` variables.
    pub(crate) constants: Vec<u8>,
    kernels: Vec<Kernel>,
}

/// One `.entry`.
#[derive(Debug)]
pub struct Kernel {
    /// Its name.
    pub name: String,
    /// Bytes and offset of each parameter, in order.
    pub(crate) params: Vec<(u32, u32)>,
    pub(crate) code: Vec<Instruction>,
    pub(crate) lists: Vec<u16>,
    /// Line and text of each instruction.
    pub(crate) lines: Vec<(u32, String)>,
    /// Registers of a thread and their first values.
    pub(crate) registers: Vec<u64>,
    pub(crate) specials: Vec<(u16, Special)>,
    pub(crate) static_shared_bytes: u32,
    pub(crate) has_dynamic_shared: bool,
    pub(crate) local_bytes: u32,
}

/// What a thread reads about its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Special {
    Thread(usize),
    Block(usize),
    Threads(usize),
    Blocks(usize),
    Lane,
    Warp,
}

/// Where a symbol lies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Symbol {
    pub(crate) offset: u64,
}

/// `.align 4 .b8 name[16] = {…}`, taken apart.
struct Variable<'a> {
    name: &'a str,
    align: u32,
    element: Type,
    /// None for `name[]`.
    count: Option<u32>,
    values: Vec<u64>,
}

impl Module {
    /// Parses PTX text as nvcc writes it.
    ///
    /// # Errors
    /// [`Error::Parse`] names the first line that it does not know.
    pub fn parse(text: &str) -> Result<Module> {
        let text = without_comments(text);
        let mut cursor = Cursor::new(&text);
        let mut symbols = HashMap::new();
        let mut module = Module {
            constants: Vec::new(),
            kernels: Vec::new(),
        };
        let mut has_dynamic_shared = false;
        loop {
            cursor.skip_blank();
            if cursor.is_at_end() {
                return Ok(module);
            }
            let rest = cursor.peek();
            let directive = rest.split_whitespace().next().unwrap_or_default();
            match directive {
                ".version" | ".target" | ".address_size" => {
                    cursor.line();
                }
                ".const" => {
                    let statement = cursor.until(&[';']).0;
                    let variable = variable(&statement, ".const")?;
                    let at = module
                        .constants
                        .len()
                        .next_multiple_of(variable.align as usize);
                    module.constants.resize(at, 0);
                    let bytes = variable.element.bytes() as usize;
                    for i in 0..variable.count.unwrap_or(0) as usize {
                        let value = variable.values.get(i).copied().unwrap_or(0);
                        module
                            .constants
                            .extend_from_slice(&value.to_le_bytes()[..bytes]);
                    }
                    let offset = at as u64;
                    symbols.insert(variable.name.to_owned(), Symbol { offset });
                }
                ".extern" => {
                    let statement = cursor.until(&[';']).0;
                    let variable = variable(&statement, ".extern .shared")?;
                    if has_dynamic_shared || variable.count.is_some() {
                        return Err(statement.error("only one dynamic shared array is known"));
                    }
                    has_dynamic_shared = true;
                    // Static arrays come after it is known how many there are, so the dynamic one stands first.
                    symbols.insert(variable.name.to_owned(), Symbol { offset: 0 });
                }
                ".visible" => {
                    let kernel = kernel(&mut cursor, &symbols, has_dynamic_shared)?;
                    module.kernels.push(kernel);
                }
                _ => return Err(cursor.line().error("unknown directive")),
            }
        }
    }

    /// The kernels, in the text's order.
    pub fn kernels(&self) -> &[Kernel] {
        &self.kernels
    }

    /// The kernel of that name.
    ///
    /// # Errors
    /// [`Error::Launch`] when there is none.
    pub fn kernel(&self, name: &str) -> Result<&Kernel> {
        let found = self.kernels.iter().find(|kernel| kernel.name == name);
        found.ok_or_else(|| Error::Launch(format!("no kernel is called {name}")))
    }
}

fn kernel(
    cursor: &mut Cursor,
    symbols: &HashMap<String, Symbol>,
    has_dynamic_shared: bool,
) -> Result<Kernel> {
    let head = cursor.until(&['(']).0;
    let name = head
        .text
        .strip_prefix(".visible .entry")
        .ok_or_else(|| head.error("only kernels are known"))?
        .trim();
    let mut kernel = Kernel {
        name: name.to_owned(),
        params: Vec::new(),
        code: Vec::new(),
        lists: Vec::new(),
        lines: Vec::new(),
        registers: Vec::new(),
        specials: Vec::new(),
        static_shared_bytes: 0,
        has_dynamic_shared,
        local_bytes: 0,
    };
    let mut symbols = symbols.clone();
    let params = cursor.until(&[')']).0;
    let mut end = 0;
    for param in params.text.split(',').filter(|text| !text.is_empty()) {
        let statement = Statement {
            line: params.line,
            text: param.trim(),
        };
        let variable = variable(&statement, ".param")?;
        let bytes = variable.element.bytes() * variable.count.unwrap_or(1);
        let offset = u32::next_multiple_of(end, variable.align);
        kernel.params.push((bytes, offset));
        let symbol = Symbol {
            offset: u64::from(offset),
        };
        symbols.insert(variable.name.to_owned(), symbol);
        end = offset + bytes;
    }
    // `.maxntid` and the like stand between the parameters and the body.
    cursor.until(&['{']);
    let mut decoder = Decoder::new(kernel, symbols);
    let mut depth = 1;
    while depth > 0 {
        match cursor.piece() {
            Some(Piece::Open) => depth += 1,
            Some(Piece::Close) => depth -= 1,
            Some(Piece::Label(label)) => decoder.label(label),
            Some(Piece::Statement(statement)) => body_statement(&mut decoder, &statement)?,
            None => return Err(cursor.line().error("a body without an end")),
        }
    }
    decoder.finish()
}

fn body_statement(decoder: &mut Decoder, statement: &Statement) -> Result<()> {
    let directive = statement.text.split_whitespace().next().unwrap_or_default();
    match directive {
        "" | ".pragma" => Ok(()),
        ".reg" => decoder.registers(statement),
        ".shared" | ".local" => {
            let variable = variable(statement, directive)?;
            let count = variable
                .count
                .ok_or_else(|| statement.error("an array without a size"))?;
            let bytes = variable.element.bytes() * count;
            decoder.variable(variable.name, directive, variable.align, bytes);
            Ok(())
        }
        _ if directive.starts_with('.') => Err(statement.error("unknown directive")),
        _ => decoder.instruction(statement),
    }
}

fn variable<'a>(statement: &Statement<'a>, space: &str) -> Result<Variable<'a>> {
    let error = || statement.error("no variable of a form that is known");
    let text = statement.text.strip_prefix(space).ok_or_else(error)?;
    let (declared, values) = text.split_once('=').unwrap_or((text, ""));
    let mut words = declared.split_whitespace().peekable();
    let mut align = None;
    if words.peek() == Some(&".align") {
        words.next();
        align = Some(
            words
                .next()
                .and_then(|n| n.parse().ok())
                .ok_or_else(error)?,
        );
    }
    let element = words
        .next()
        .and_then(|word| Type::named(word.strip_prefix('.')?))
        .ok_or_else(error)?;
    let name = words.next().ok_or_else(error)?;
    let (name, count) = match name.split_once('[') {
        None => (name, Some(1)),
        Some((name, "]")) => (name, None),
        Some((name, count)) => {
            let count = count.trim_end_matches(']').parse().map_err(|_| error())?;
            (name, Some(count))
        }
    };
    let values = values
        .trim()
        .trim_matches(['{', '}'])
        .split(',')
        .filter(|value| !value.trim().is_empty())
        .map(|value| number(value.trim()).ok_or_else(error))
        .collect::<Result<_>>()?;
    Ok(Variable {
        name,
        align: align.unwrap_or(element.bytes()),
        element,
        count,
        values,
    })
}

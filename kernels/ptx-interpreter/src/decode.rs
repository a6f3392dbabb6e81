//! Statements to instructions: names become slots, numbers become registers that are never written.

mod arithmetic;
mod memory;
mod warp;

use std::collections::HashMap;

use crate::Result;
use crate::module::{Kernel, Special, Symbol};
use crate::op::{Instruction, NO_SLOT, Op};
use crate::text::{Operand, Statement, Written};
use crate::types::Type;

/// Makes the code of one kernel.
pub(crate) struct Decoder {
    kernel: Kernel,
    symbols: HashMap<String, Symbol>,
    slots: HashMap<String, u16>,
    /// Bits of each declared register.
    bits: HashMap<u16, u8>,
    numbers: HashMap<u64, u16>,
    labels: HashMap<String, u32>,
    /// Branches and the labels they name.
    branches: Vec<(usize, String)>,
}

impl Decoder {
    pub(crate) fn new(kernel: Kernel, symbols: HashMap<String, Symbol>) -> Self {
        Self {
            kernel,
            symbols,
            slots: HashMap::new(),
            bits: HashMap::new(),
            numbers: HashMap::new(),
            labels: HashMap::new(),
            branches: Vec::new(),
        }
    }

    pub(crate) fn label(&mut self, label: &str) {
        let at = self.kernel.code.len() as u32;
        self.labels.insert(label.to_owned(), at);
    }

    fn slot(&mut self, value: u64) -> u16 {
        let slot = self.kernel.registers.len();
        assert!(slot < usize::from(NO_SLOT), "too many registers");
        self.kernel.registers.push(value);
        slot as u16
    }

    /// `.reg .b32 %r<5>` or `.reg .b32 a, b`
    pub(crate) fn registers(&mut self, statement: &Statement) -> Result<()> {
        let error = || statement.error("no registers of a form that is known");
        let mut words = statement.text.splitn(3, char::is_whitespace);
        let ty = words
            .nth(1)
            .and_then(|ty| Type::named(ty.strip_prefix('.')?));
        let bits = 8 * ty.ok_or_else(error)?.bytes() as u8;
        let names = words.next().ok_or_else(error)?;
        for name in names.split(',').map(str::trim) {
            let Some((stem, count)) = name.split_once('<') else {
                self.declare(name.to_owned(), bits);
                continue;
            };
            let count = count.trim_end_matches('>').parse().map_err(|_| error())?;
            for i in 0..count {
                self.declare(format!("{stem}{i}"), bits);
            }
        }
        Ok(())
    }

    fn declare(&mut self, name: String, bits: u8) {
        let slot = self.slot(0);
        self.slots.insert(name, slot);
        self.bits.insert(slot, bits);
    }

    /// 64 for what is not declared.
    fn register_bits(&self, slot: u16) -> u8 {
        self.bits.get(&slot).copied().unwrap_or(64)
    }

    /// An array in shared or local memory.
    pub(crate) fn variable(&mut self, name: &str, space: &str, align: u32, bytes: u32) {
        let end = match space {
            ".shared" => &mut self.kernel.static_shared_bytes,
            _ => &mut self.kernel.local_bytes,
        };
        let offset = end.next_multiple_of(align);
        *end = offset + bytes;
        let mut offset = u64::from(offset);
        if space == ".shared" {
            offset += crate::shared::STATIC_START;
        }
        self.symbols.insert(name.to_owned(), Symbol { offset });
    }

    pub(crate) fn instruction(&mut self, statement: &Statement) -> Result<()> {
        let written = statement.written()?;
        let (guard, is_negated) = match written.guard {
            None => (NO_SLOT, false),
            Some((name, is_negated)) => (self.register(statement, name)?, is_negated),
        };
        let (op, args, list) = self.decode(statement, &written)?;
        if op == Op::Branch {
            let Some(Operand::Name(label)) = written.operands.first() else {
                return Err(statement.error("a branch to no label"));
            };
            let branch = (self.kernel.code.len(), (*label).to_owned());
            self.branches.push(branch);
        }
        self.kernel.code.push(Instruction {
            op,
            guard,
            is_negated,
            args,
            list,
        });
        let text = statement.text.split_whitespace().collect::<Vec<_>>();
        self.kernel.lines.push((statement.line, text.join(" ")));
        Ok(())
    }

    fn decode(&mut self, statement: &Statement, written: &Written) -> Result<Decoded> {
        let opcode = written.opcode.as_slice();
        let mut operands = Operands {
            decoder: self,
            statement,
            operands: &written.operands,
            next: 0,
        };
        let decoded = match opcode {
            ["bra"] | ["bra", "uni"] => {
                operands.next = 1;
                Some((Op::Branch, NO_ARGS, 0))
            }
            ["ret"] | ["exit"] => Some((Op::Exit, NO_ARGS, 0)),
            _ => None,
        };
        let decoded = match decoded {
            Some(decoded) => Some(decoded),
            None => match arithmetic::decode(opcode, &mut operands)? {
                Some(decoded) => Some(decoded),
                None => match memory::decode(opcode, &mut operands)? {
                    Some(decoded) => Some(decoded),
                    None => warp::decode(opcode, &mut operands)?,
                },
            },
        };
        let decoded = decoded
            .ok_or_else(|| statement.error("unknown opcode for these types and modifiers"))?;
        match operands.next == written.operands.len() {
            true => Ok(decoded),
            false => Err(statement.error("more operands than are known")),
        }
    }

    fn register(&mut self, statement: &Statement, name: &str) -> Result<u16> {
        if let Some(&slot) = self.slots.get(name) {
            return Ok(slot);
        }
        if let Some(special) = special(name) {
            let slot = self.slot(0);
            self.slots.insert(name.to_owned(), slot);
            self.kernel.specials.push((slot, special));
            return Ok(slot);
        }
        if name == "WARP_SZ" {
            return Ok(self.number(32));
        }
        if name == "_" {
            return Ok(self.slot(0));
        }
        match self.symbols.get(name) {
            Some(symbol) => {
                let offset = symbol.offset;
                Ok(self.number(offset))
            }
            None => Err(statement.error(format!("no register or symbol is called {name}"))),
        }
    }

    fn number(&mut self, value: u64) -> u16 {
        if let Some(&slot) = self.numbers.get(&value) {
            return slot;
        }
        let slot = self.slot(value);
        self.numbers.insert(value, slot);
        slot
    }

    /// The kernel, when every branch has its label.
    pub(crate) fn finish(mut self) -> Result<Kernel> {
        for (at, label) in std::mem::take(&mut self.branches) {
            let Some(&target) = self.labels.get(&label) else {
                let (line, text) = &self.kernel.lines[at];
                let statement = Statement { line: *line, text };
                return Err(statement.error("a branch to no label"));
            };
            self.kernel.code[at].list = target;
        }
        // Falling off the end is as good as an exit.
        self.kernel.code.push(Instruction {
            op: Op::Exit,
            guard: NO_SLOT,
            is_negated: false,
            args: NO_ARGS,
            list: 0,
        });
        self.kernel.lines.push((0, "end".into()));
        Ok(self.kernel)
    }
}

fn special(name: &str) -> Option<Special> {
    let axis = |name: &str| ["x", "y", "z"].iter().position(|axis| *axis == name);
    let (name, rest) = name
        .strip_prefix('%')?
        .split_once('.')
        .unwrap_or((&name[1..], ""));
    match name {
        "tid" => axis(rest).map(Special::Thread),
        "ctaid" => axis(rest).map(Special::Block),
        "ntid" => axis(rest).map(Special::Threads),
        "nctaid" => axis(rest).map(Special::Blocks),
        "laneid" => Some(Special::Lane),
        "warpid" => Some(Special::Warp),
        _ => None,
    }
}

const NO_ARGS: [u16; 5] = [0; 5];

/// Operation, arguments, list.
type Decoded = (Op, [u16; 5], u32);

/// The operands of one instruction, taken one after the other.
struct Operands<'a> {
    decoder: &'a mut Decoder,
    statement: &'a Statement<'a>,
    operands: &'a [Operand<'a>],
    next: usize,
}

impl<'a> Operands<'a> {
    fn take(&mut self) -> Result<&'a Operand<'a>> {
        let operand = self.operands.get(self.next);
        self.next += 1;
        operand.ok_or_else(|| self.statement.error("too few operands"))
    }

    fn left(&self) -> usize {
        self.operands.len().saturating_sub(self.next)
    }

    fn slot_of(&mut self, operand: &Operand) -> Result<u16> {
        match operand {
            Operand::Name(name) => self.decoder.register(self.statement, name),
            Operand::Bits(bits) => Ok(self.decoder.number(*bits)),
            _ => Err(self.statement.error("an operand of another kind is wanted")),
        }
    }

    /// A register or number.
    fn value(&mut self) -> Result<u16> {
        let operand = self.take()?;
        self.slot_of(operand)
    }

    /// A number of an integer type's bits or fewer: wrapped.
    fn int(&mut self, bits: u8) -> Result<u16> {
        match self.take()? {
            Operand::Bits(value) => {
                let value = value & (u64::MAX >> (64 - bits));
                Ok(self.decoder.number(value))
            }
            operand => self.slot_of(operand),
        }
    }

    /// `N` integers behind the result.
    fn ints<const N: usize>(&mut self, bits: u8) -> Result<[u16; 5]> {
        let mut args = NO_ARGS;
        args[0] = self.value()?;
        for arg in &mut args[1..=N] {
            *arg = self.int(bits)?;
        }
        Ok(args)
    }

    /// `N` values behind the result.
    fn values<const N: usize>(&mut self) -> Result<[u16; 5]> {
        self.ints::<N>(64)
    }

    /// `[base + offset]`: two slots.
    fn address(&mut self) -> Result<[u16; 2]> {
        let Operand::Address(base, offset) = self.take()? else {
            return Err(self.statement.error("an address is wanted"));
        };
        let base = self.slot_of(base)?;
        Ok([base, self.decoder.number(*offset as u64)])
    }

    /// The elements of a vector, or one value, as slots in the lists.
    fn list(&mut self) -> Result<(u32, usize)> {
        let operand = self.take()?;
        let operands = match operand {
            Operand::Vector(operands) => operands.as_slice(),
            _ => std::slice::from_ref(operand),
        };
        let slots: Vec<u16> = operands
            .iter()
            .map(|operand| self.slot_of(operand))
            .collect::<Result<_>>()?;
        let start = self.decoder.kernel.lists.len() as u32;
        self.decoder.kernel.lists.extend(&slots);
        Ok((start, slots.len()))
    }
}

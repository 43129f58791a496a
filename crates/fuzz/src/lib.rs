//! Mutated inputs for whatever reads what others wrote. Each reader's tests hand over valid inputs. Every run of the tests reads some thousands
//! of mutants; `docs/fuzzing.md` has the command for ten million. The inputs follow from their numbers alone.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "tests alone use it, and read what it prints")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use nix::sys::resource::{Resource, setrlimit};
use nix::time::{ClockId, clock_gettime};

use autotune_numerics::seeds::mix;

/// Inputs of all readers together, where nobody asks for more.
const INPUTS: usize = 20_000;
/// No input may cost a reader more time of a core.
const SLOWEST: Duration = Duration::from_secs(1);
/// All memory of a long run.
const MEMORY: u64 = 1 << 30;
const LONGEST: usize = 1 << 18;
/// What breaks readers of any format: numbers at the ends of their ranges, marks without their partners.
const WORDS: [&str; 32] = [
    "0",
    "-1",
    "1e308",
    "1e-400",
    "NaN",
    "inf",
    "4294967295",
    "4294967296",
    "9223372036854775807",
    "18446744073709551616",
    "null",
    "true",
    "[",
    "]",
    "{",
    "}",
    "(",
    "\"",
    "'",
    "\\",
    ",",
    ":",
    ": ",
    "- ",
    "&a ",
    "*a",
    "#",
    "\n",
    "\r\n",
    "\0",
    "é",
    "\u{202e}",
];

/// The random choices of one input, which follow from its number.
pub struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = mix(self.0, &[1]);
        self.0
    }

    /// A number below `end`, 0 where there is none.
    pub fn below(&mut self, end: usize) -> usize {
        self.next() as usize % end.max(1)
    }

    /// The input in pieces, as reads of a socket bring them.
    pub fn pieces<'a>(&mut self, mut input: &'a [u8]) -> Vec<&'a [u8]> {
        let mut pieces = Vec::new();
        while !input.is_empty() {
            let (piece, rest) = input.split_at((1 + self.below(200)).min(input.len()));
            pieces.push(piece);
            input = rest;
        }
        pieces
    }
}

/// A damaged copy of one of the valid inputs.
fn mutant(random: &mut Random, valid: &[Vec<u8>]) -> Vec<u8> {
    let mut input = valid[random.below(valid.len())].clone();
    for _ in 0..=random.below(6) {
        let from = random.below(input.len() + 1);
        let to = from + random.below((input.len() - from).min(64) + 1);
        let word = WORDS[random.below(WORDS.len())].as_bytes();
        let digits = input[from..].iter().position(u8::is_ascii_digit).map_or(from..to, |at| {
            let start = from + at;
            start..start + input[start..].iter().take_while(|b| b.is_ascii_digit() || **b == b'.').count()
        });
        match random.below(10) {
            0 => drop(input.drain(from..to)),
            1 => input.iter_mut().skip(from).take(1).for_each(|byte| *byte ^= 1 << random.below(8)),
            2 => input.iter_mut().skip(from).take(1).for_each(|byte| *byte = random.next() as u8),
            3 => drop(input.splice(from..from, word.iter().copied())),
            4 => drop(input.splice(from..to, word.iter().copied())),
            5 => drop(input.splice(digits, word.iter().copied())),
            6 => {
                let piece = input[from..to].repeat(1 + random.below(4));
                drop(input.splice(from..from, piece));
            }
            7 => {
                let other = &valid[random.below(valid.len())];
                let rest = &other[random.below(other.len() + 1)..];
                drop(input.splice(from.., rest.iter().copied()));
            }
            // Depth and length beyond all reason, seldom: they take long.
            8 if random.below(100) == 0 => {
                let many =
                    if random.below(2) == 0 { word } else { &input[from..to] }.repeat(1 << (8 + random.below(9)));
                drop(input.splice(from..from, many));
            }
            _ => input.truncate(from.max(input.len() / 2)),
        }
    }
    input.truncate(LONGEST);
    input
}

/// What this thread has computed: whoever else is busy on the machine does not count.
fn computed() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap().into()
}

/// Reads mutants of the valid inputs; `share` of a hundred inputs are this reader's. A reader may refuse any, and must not panic, take longer than
/// a second, or fill the memory.
pub fn fuzz(share: usize, valid: impl IntoIterator<Item = impl AsRef<[u8]>>, read: impl Fn(&[u8], &mut Random)) {
    let valid: Vec<Vec<u8>> = valid.into_iter().map(|input| input.as_ref().to_vec()).collect();
    let number = |name: &str| std::env::var_os(name).and_then(|value| value.to_str()?.parse::<usize>().ok());
    let (asked, first) = (number("FUZZ_INPUTS"), number("FUZZ_FROM").unwrap_or(0));
    if asked.is_some() {
        setrlimit(Resource::RLIMIT_DATA, MEMORY, MEMORY).unwrap();
    }
    let thread = std::thread::current();
    let name = thread.name().unwrap_or_default();
    let count = asked.unwrap_or(INPUTS) * share / 100;
    let (mut slowest, mut bad) = (Duration::ZERO, 0);
    for number in first..first + count {
        if asked.is_some() && (number - first).is_multiple_of(1 << 16) {
            println!("{name}: from {number}");
        }
        let mut random = Random(number as u64);
        let input = mutant(&mut random, &valid);
        let begun = computed();
        let sound = catch_unwind(AssertUnwindSafe(|| read(&input, &mut random))).is_ok();
        let took = computed().saturating_sub(begun);
        slowest = slowest.max(took);
        if !sound || took > SLOWEST {
            bad += 1;
            let shown: String = String::from_utf8_lossy(&input).escape_debug().take(2_000).collect();
            println!("{name}: input {number} of {} bytes, {took:?}, sound: {sound}: {shown}", input.len());
        }
    }
    println!("{name}: {count} inputs, the slowest took {slowest:?}, {bad} bad");
    assert_eq!(bad, 0);
}

//! Step times of engines whose kernels were timed one by one: a table for each engine, and a step as the sum of its parts.
//!
//! The formula of [`StepCosts`](super::StepCosts) has no part in a table. It adds what runs on the CPU.

use std::sync::OnceLock;

use super::costs::StepWork;

/// Tokens of a step up to which tables are looked up; longer steps take in proportion.
const MOST_TOKENS: usize = 33_792;
const MOST_SEQS: usize = 1024;
/// The prompt whose attention stands for what every step with a prompt takes once: so many tokens after so many.
const FLOOR: (u32, u32) = (16, 2048);

/// A table that comes with the program.
struct Embedded {
    name: &'static str,
    text: &'static str,
    read: OnceLock<Option<Kernels>>,
}

macro_rules! embedded {
    ($($name:literal),* $(,)?) => {
        [$(Embedded {
            name: $name,
            text: include_str!(concat!("../../../profiles/kernels/parts_", $name, ".csv")),
            read: OnceLock::new(),
        }),*]
    };
}

static TABLES: [Embedded; 16] = embedded![
    "a100_sxm_llama-3.1-8b_tp1_vllm_0.14.0",
    "b200_sxm_llama-3.1-70b-fp8_tp1_vllm_0.24.0",
    "b200_sxm_qwen3-235b-a22b-nvfp4_tp2_vllm_0.24.0",
    "h100_sxm_gpt-oss-120b_tp1_vllm_0.24.0",
    "h100_sxm_llama-3.1-70b-fp8_tp2_vllm_0.24.0",
    "h100_sxm_llama-3.1-8b_tp1_vllm_0.24.0",
    "h100_sxm_qwen3-30b-a3b-fp8_tp1_sglang_0.5.14",
    "h100_sxm_qwen3-32b-fp8_tp1_vllm_0.24.0",
    "h100_sxm_qwen3-32b_tp2_trtllm_1.3.0rc20",
    "h200_sxm_llama-3.1-70b-fp8_tp1_trtllm_1.3.0rc20",
    "h200_sxm_llama-3.1-70b-fp8_tp1_vllm_0.24.0",
    "h200_sxm_llama-3.1-8b_tp1_sglang_0.5.14",
    "h200_sxm_llama-3.1-8b_tp1_vllm_0.24.0",
    "h200_sxm_qwen3-30b-a3b_tp1_vllm_0.24.0",
    "h200_sxm_qwen3-32b_tp1_vllm_0.24.0",
    "l40s_llama-3.1-8b_tp1_vllm_0.24.0",
];

/// What the steps of one engine take; all values in seconds.
#[derive(Debug)]
pub struct Kernels {
    name: &'static str,
    /// By tokens in the step, those that pad it to the size of a CUDA graph included.
    tokens: Vec<f64>,
    /// By rows that get logits.
    logits: Vec<f64>,
    /// By new tokens of a prompt and by its cached tokens.
    prompt: Grid,
    /// Contexts, and for each number of sequences the seconds at each of them.
    contexts: Vec<f64>,
    decode: Vec<Vec<f64>>,
    floor: f64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Prompts {
    count: u64,
    /// Seconds that their attention takes beyond that of the floor.
    excess: f64,
}

#[derive(Debug, Default)]
struct Grid {
    rows: Vec<f64>,
    columns: Vec<f64>,
    values: Vec<Vec<f64>>,
}

/// A row of a table: `x`, `context`, seconds.
type Row = (f64, f64, f64);

impl Kernels {
    pub fn names() -> impl Iterator<Item = &'static str> {
        TABLES.iter().map(|table| table.name)
    }

    pub fn named(name: &str) -> Option<&'static Self> {
        let table = TABLES.iter().find(|table| table.name == name)?;
        table.read.get_or_init(|| Self::read(table.name, table.text)).as_ref()
    }

    pub fn name(&self) -> &'static str {
        self.name
    }

    fn read(name: &'static str, text: &str) -> Option<Self> {
        let rows = |part: &str| -> Vec<Row> {
            let fields = text.lines().filter_map(|line| line.strip_prefix(part)?.strip_prefix(','));
            let row = |line: &str| {
                let mut numbers = line.split(',').map(str::parse::<f64>);
                Some((numbers.next()?.ok()?, numbers.next()?.ok()?, numbers.next()?.ok()? / 1e3))
            };
            fields.filter_map(row).collect()
        };
        let line = |part: &str, most: usize| -> Option<Vec<f64>> {
            let points: Vec<(f64, f64)> = rows(part).iter().map(|(x, _, seconds)| (*x, *seconds)).collect();
            (!points.is_empty()).then(|| (0..=most).map(|x| between(&points, x as f64)).collect())
        };
        let prompt = Grid::of(&rows("prefill_attention"))?;
        let decode = Grid::of(&rows("decode_attention"))?;
        let mut read = Self {
            name,
            tokens: line("tokens", MOST_TOKENS)?,
            logits: line("logits", MOST_SEQS)?,
            prompt,
            decode: (0..=MOST_SEQS).map(|seqs| decode.row(seqs as f64)).collect(),
            contexts: decode.columns,
            floor: 0.0,
        };
        read.floor = read.prompt_attention(FLOOR.1, FLOOR.0);
        Some(read)
    }

    /// Adds a prompt of which `tokens` are computed after `before` cached ones.
    pub fn add_prompt(&self, prompts: &mut Prompts, before: u32, tokens: u32) {
        prompts.count += 1;
        prompts.excess += self.prompt_attention(before, tokens) - self.floor;
    }

    /// Seconds of a step that computes this, on the GPU.
    pub fn seconds(&self, work: &StepWork, prompts: Prompts) -> f64 {
        let attention = if prompts.count > 0 { self.floor + prompts.excess } else { 0.0 };
        in_proportion(&self.tokens, padded(work.decoding + work.prefill))
            + in_proportion(&self.logits, (work.decoding + prompts.count) as usize)
            + self.decode_attention(work.decoding, work.context)
            + attention.max(0.0)
    }

    /// Seconds of a step that decodes so many sequences with that mean context.
    pub fn decode_step(&self, seqs: u64, context: u64) -> f64 {
        let work = StepWork { decoding: seqs, context: seqs * context, ..StepWork::default() };
        self.seconds(&work, Prompts::default())
    }

    /// Seconds that a prompt of so many tokens takes, computed in one step.
    pub fn prompt_step(&self, tokens: u32) -> f64 {
        let (mut work, mut prompts) = (StepWork::default(), Prompts::default());
        work.add_prefill(0, tokens);
        self.add_prompt(&mut prompts, 0, tokens);
        self.seconds(&work, prompts)
    }

    /// Attention is nearly linear in the pairs of a new token and one before it, so values between rows are read along these.
    fn prompt_attention(&self, before: u32, tokens: u32) -> f64 {
        let Grid { rows, columns, values } = &self.prompt;
        let (row, column) = (segment(rows, f64::from(tokens)), segment(columns, f64::from(before)));
        let along = |column: usize| {
            let pairs = |tokens: f64| tokens * (columns[column] + 0.5 * tokens);
            let points = [row, row + 1].map(|row| (pairs(rows[row]), values[row][column]));
            line(points[0], points[1], pairs(f64::from(tokens)))
        };
        let points = [column, column + 1].map(|column| (columns[column], along(column)));
        line(points[0], points[1], f64::from(before)).max(0.0)
    }

    fn decode_attention(&self, seqs: u64, context: u64) -> f64 {
        if seqs == 0 {
            return 0.0;
        }
        let mean = context as f64 / seqs as f64;
        let values = &self.decode[(seqs as usize).min(MOST_SEQS)];
        let at = segment(&self.contexts, mean);
        let seconds = line((self.contexts[at], values[at]), (self.contexts[at + 1], values[at + 1]), mean);
        seconds.max(0.0) * (seqs as f64 / MOST_SEQS as f64).max(1.0)
    }
}

impl Grid {
    /// From rows in any order; a value that is missing follows the line of the two before it in its row. None without two rows and columns.
    fn of(points: &[Row]) -> Option<Self> {
        let axis = |of: fn(&Row) -> f64| {
            let mut values: Vec<f64> = points.iter().map(of).collect();
            values.sort_by(f64::total_cmp);
            values.dedup();
            values
        };
        let (rows, columns) = (axis(|p| p.0), axis(|p| p.1));
        if rows.len() < 2 || columns.len() < 2 {
            return None;
        }
        let of_row = |x: &f64| -> Option<Vec<f64>> {
            let known: Vec<(f64, f64)> = points.iter().filter(|p| p.0 == *x).map(|p| (p.1, p.2)).collect();
            (known.len() > 1).then(|| columns.iter().map(|context| between(&known, *context)).collect())
        };
        let values = rows.iter().map(of_row).collect::<Option<Vec<_>>>()?;
        Some(Self { rows, columns, values })
    }

    /// The values of every column at that place between the rows.
    fn row(&self, x: f64) -> Vec<f64> {
        let at = segment(&self.rows, x);
        let (low, high) = (self.rows[at], self.rows[at + 1]);
        let pairs = self.values[at].iter().zip(&self.values[at + 1]);
        pairs.map(|(a, b)| line((low, *a), (high, *b), x.max(self.rows[0]))).collect()
    }
}

/// Tokens of the CUDA graph that vLLM replays for a step of so many; a larger step replays none.
fn padded(tokens: u64) -> usize {
    let tokens = tokens as usize;
    match tokens {
        0..=2 => tokens,
        3..=4 => 4,
        5..=256 => tokens.next_multiple_of(8),
        257..=512 => tokens.next_multiple_of(16),
        _ => tokens,
    }
}

/// The value at that place, or what the last one says in proportion.
fn in_proportion(values: &[f64], at: usize) -> f64 {
    let last = values.len() - 1;
    if at <= last { values[at] } else { values[last] * at as f64 / last as f64 }
}

/// The line through two points, at `x`.
fn line((x0, y0): (f64, f64), (x1, y1): (f64, f64), x: f64) -> f64 {
    y0 + (y1 - y0) * (x - x0) / (x1 - x0)
}

/// The number of the first of two neighbours between which `x` lies, or that are nearest to it.
fn segment(axis: &[f64], x: f64) -> usize {
    axis.partition_point(|value| *value <= x).clamp(1, axis.len() - 1) - 1
}

/// Along the points, which are sorted; before the first its value, behind the last the line of the last two.
fn between(points: &[(f64, f64)], x: f64) -> f64 {
    let at = points.partition_point(|point| point.0 <= x).clamp(1, points.len().max(2) - 1) - 1;
    match points.get(at..at + 2) {
        Some([low, high]) => line(*low, *high, x.max(low.0)),
        _ => points.first().map_or(0.0, |point| point.1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// (prefill tokens, their context, decoding sequences, mean context, ms), from the table of whole steps.
    fn agrees(name: &str, steps: &[(u32, u32, u64, u64, f64)]) {
        let kernels = Kernels::named(name).unwrap();
        for &(prefill, before, decoding, context, ms) in steps {
            let (mut work, mut prompts) = (StepWork::default(), Prompts::default());
            (work.decoding, work.context) = (decoding, decoding * context);
            if prefill > 0 {
                work.add_prefill(before, prefill);
                kernels.add_prompt(&mut prompts, before, prefill);
            }
            let found = kernels.seconds(&work, prompts) * 1e3;
            assert!(
                (found / ms - 1.0).abs() < 0.002,
                "{name} {prefill} {before} {decoding} {context}: {found}, not {ms}"
            );
        }
    }

    #[test]
    fn steps_of_the_70b_engine_on_the_h200_are_those_of_the_whole_table() {
        let steps = [
            (0, 0, 160, 4096, 81.650),
            (0, 0, 24, 2048, 29.867),
            (0, 0, 512, 256, 69.954),
            (0, 0, 48, 4096, 33.422),
            (8192, 2048, 0, 0, 1075.733),
            (4096, 2048, 0, 0, 516.790),
            (8192, 8192, 0, 0, 1225.332),
            (4096, 8192, 0, 0, 613.419),
            (512, 8192, 1, 16384, 138.882),
            (256, 2048, 384, 2048, 155.585),
            (16, 0, 64, 16384, 85.131),
            (4096, 2048, 1, 256, 597.103),
        ];
        agrees("h200_sxm_llama-3.1-70b-fp8_tp1_vllm_0.24.0", &steps);
    }

    #[test]
    fn steps_of_a_mixture_of_experts_on_the_b200_are_those_of_the_whole_table() {
        let steps = [
            (0, 0, 80, 16384, 27.072),
            (0, 0, 384, 4096, 38.644),
            (0, 0, 1024, 2048, 53.315),
            (0, 0, 24, 1024, 13.169),
            (2048, 8192, 0, 0, 69.783),
            (16, 2048, 0, 0, 14.031),
            (16384, 2048, 0, 0, 381.978),
            (64, 8192, 0, 0, 19.530),
            (64, 2048, 16, 4096, 21.361),
            (512, 2048, 1, 2048, 35.142),
            (1024, 8192, 512, 4096, 70.899),
            (128, 8192, 128, 2048, 31.481),
        ];
        agrees("b200_sxm_qwen3-235b-a22b-nvfp4_tp2_vllm_0.24.0", &steps);
    }

    #[test]
    fn every_table_reads_and_longer_steps_take_longer_in_the_large() {
        for name in Kernels::names() {
            let kernels = Kernels::named(name).unwrap();
            assert_eq!(kernels.name(), name);
            assert!(kernels.decode_step(1, 1024) > 3e-3 && kernels.decode_step(1, 1024) < 0.03, "{name}");
            assert!(kernels.decode_step(256, 1024) > 1.5 * kernels.decode_step(1, 1024), "{name}");
            assert!(kernels.decode_step(64, 8192) > kernels.decode_step(64, 1024), "{name}");
            assert!(kernels.prompt_step(8192) > 2.0 * kernels.prompt_step(2048), "{name}");
            assert!(kernels.decode_step(2000, 512) > kernels.decode_step(1000, 512), "{name}");
        }
        assert!(Kernels::named("h200").is_none());
    }

    #[test]
    fn several_prompts_share_the_floor() {
        let kernels = Kernels::named("h200_sxm_llama-3.1-8b_tp1_vllm_0.24.0").unwrap();
        let attention = |prompts: &[(u32, u32)]| {
            let mut all = Prompts::default();
            prompts.iter().for_each(|(before, tokens)| kernels.add_prompt(&mut all, *before, *tokens));
            all.excess + kernels.floor
        };
        let (one, two) = (attention(&[(0, 512)]), attention(&[(0, 512), (0, 512)]));
        assert!((two - (2.0 * one - kernels.floor)).abs() < 1e-12);
    }

    #[test]
    fn steps_are_padded_to_the_sizes_of_graphs() {
        let sizes = [(1, 1), (3, 4), (5, 8), (129, 136), (256, 256), (257, 272), (511, 512), (513, 513)];
        sizes.iter().for_each(|(tokens, size)| assert_eq!(padded(*tokens), *size));
    }
}

//! The 300 prompts: what is known of them, and what was drawn because it is not.
//!
//! Known, from the published scripts: 100 conversations of five turns, flattened in order. Each prompt is its turn's whole history
//! after a system prompt and one of ten passages. The client shuffled the 500 entries with Python's `random.seed(0)`. It sent the first
//! 300 at NumPy's exponential gaps for seed 0, stretched to end at 300 / rate. `requests.csv` holds those two sequences. Known, from
//! the results: 1,741,762 prompt tokens and about 155,000 tokens of answers, no answer beyond 1,024. The warm-up's progress log agrees
//! with the gaps to 10 ms, and its two longest prompts are last turns, as the shuffle says.
//!
//! Drawn: which passage a conversation is about, how long its answers were, and which prompts the model ended at once. It does so with a
//! third of them: the results leave no other shape. Half of the answers end before 513 tokens. The mean is 517, the deviation 416, and
//! no time per token is zero. First answers to a passage begin alike for half of their length. Without that, too few of the first 300
//! prompts would find their history in the cache to explain the median TTFT of the first runs.

use std::path::Path;

use autotune::twin::{Arrival, PromptShape};

const PROMPT_TOKENS: f64 = 1_741_762.0;
const CONVERSATIONS: usize = 100;
const TURNS: usize = 5;
const PASSAGES: usize = 10;
const BLOCK: u32 = 16;
/// No answer is longer.
const MOST_TOKENS: f64 = 1024.0;

/// What was drawn: chosen among two dozen tries by the loss over two configurations and by their TPOT p99 at 2 and 2.5 req/s. These are `baseline-rerun` and `mem095`. The
/// medians of the configurations held out were printed beside and chose nothing; another draw with as good a loss misses more crossings.
struct Draw {
    /// Tokens of a first answer and of a later one in the mean, and their relative deviation.
    first_answer: f64,
    later_answer: f64,
    deviation: f64,
    /// The part of the later answers that end early, between 150 and 600 tokens.
    early: f64,
    /// Tokens of a question.
    question: f64,
    /// The part of a first answer that its passage shares.
    alike: f64,
    /// The deviation of the lengths of passages, in tokens.
    passage: f64,
    /// The part of the prompts that are answered with a single token.
    ended_at_once: f64,
    seeds: [u64; 2],
}

const DRAW: Draw = Draw {
    first_answer: 440.0,
    later_answer: 880.0,
    deviation: 0.12,
    early: 0.1,
    question: 40.0,
    alike: 0.5,
    passage: 300.0,
    ended_at_once: 0.32,
    seeds: [1, 1],
};

pub struct Request {
    gap: f64,
    prompt: PromptShape,
    output_tokens: u32,
}

/// SplitMix64: plain, and the same forever.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn uniform(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn normal(&mut self) -> f64 {
        (-2.0 * (1.0 - self.uniform()).ln()).sqrt() * (std::f64::consts::TAU * self.uniform()).cos()
    }
}

struct Conversations {
    passage: Vec<usize>,
    answers: Vec<[f64; TURNS]>,
    /// How much longer a passage is than the mean.
    longer: Vec<f64>,
}

impl Conversations {
    fn draw(random: &mut Random) -> Self {
        let mut passages = Random(DRAW.seeds[1]);
        let passage: Vec<usize> = (0..CONVERSATIONS).map(|_| (passages.uniform() * PASSAGES as f64) as usize).collect();
        let usual = |mean: f64, random: &mut Random| {
            (mean * (1.0 + DRAW.deviation * random.normal())).clamp(60.0, MOST_TOKENS).floor()
        };
        let answer = |turn: usize, random: &mut Random| match turn {
            0 => usual(DRAW.first_answer, random),
            _ if random.uniform() < DRAW.early => (150.0 + 450.0 * random.uniform()).floor(),
            _ => usual(DRAW.later_answer, random),
        };
        let conversation = |_| {
            // One number of each conversation is set aside.
            random.next();
            std::array::from_fn(|turn| answer(turn, random))
        };
        let mut answers: Vec<[f64; TURNS]> = (0..CONVERSATIONS).map(conversation).collect();
        // A passage's first answers are equally long, since they are alike.
        let first: Vec<f64> = (0..PASSAGES).map(|_| answer(0, random)).collect();
        answers.iter_mut().zip(&passage).for_each(|(answers, passage)| answers[0] = first[*passage]);
        let longer = (0..PASSAGES).map(|_| DRAW.passage * random.normal()).collect();
        Self { passage, answers, longer }
    }

    /// Tokens of the history of a turn beyond the mean passage.
    fn beyond(&self, conversation: usize, turn: usize) -> f64 {
        let history: f64 = self.answers[conversation][..turn].iter().map(|a| a + DRAW.question).sum();
        history + self.longer[self.passage[conversation]]
    }
}

/// The requests in the order in which they are sent.
pub fn draw(file: &Path) -> Vec<Request> {
    let rows: Vec<(usize, usize, f64)> =
        csv::Reader::from_path(file).unwrap().deserialize().map(|r| r.unwrap()).collect();
    let mut random = Random(DRAW.seeds[0]);
    let conversations = Conversations::draw(&mut random);
    let beyond: f64 = rows.iter().map(|(c, turn, _)| conversations.beyond(*c, *turn)).sum();
    let mean_passage = (PROMPT_TOKENS - beyond) / rows.len() as f64;
    // Evenly spread, so that exactly that part of the prompts ends at once.
    let mut ranks: Vec<f64> = (0..rows.len()).map(|i| (i as f64 + 0.5) / rows.len() as f64).collect();
    for i in (1..ranks.len()).rev() {
        ranks.swap(i, (random.uniform() * (i + 1) as f64) as usize);
    }
    let request = |((conversation, turn, gap), rank): (&(usize, usize, f64), f64)| {
        let (c, turn) = (*conversation, *turn);
        let tokens = (mean_passage + conversations.beyond(c, turn)).round() as u32;
        let passage = conversations.passage[c];
        let shared = mean_passage + conversations.longer[passage] + DRAW.alike * conversations.answers[c][0];
        let shared = (shared / f64::from(BLOCK)) as u32;
        let block = |b: u32| {
            let owner = if b < shared { (1 << 60) | ((passage as u64) << 40) } else { (2 << 60) | ((c as u64) << 40) };
            Random(owner | u64::from(b)).next()
        };
        let output_tokens = if rank < DRAW.ended_at_once { 1 } else { conversations.answers[c][turn] as u32 };
        let prompt = PromptShape { tokens, blocks: (0..tokens / BLOCK).map(block).collect() };
        Request { gap: *gap, prompt, output_tokens }
    };
    rows.iter().zip(ranks).map(request).collect()
}

/// Their arrivals at a rate: the last is due when that many requests are due at that rate.
pub fn arrivals(requests: &[Request], rate: f64) -> Vec<Arrival> {
    let stretch = requests.len() as f64 / rate / requests.iter().map(|r| r.gap).sum::<f64>();
    let mut due_s = 0.0;
    let arrival = |r: &Request| {
        due_s += r.gap * stretch;
        Arrival { due_s, prompt: r.prompt.clone(), output_tokens: r.output_tokens }
    };
    requests.iter().map(arrival).collect()
}

pub fn describe(requests: &[Request]) {
    let prompts: Vec<u32> = requests.iter().map(|r| r.prompt.tokens).collect();
    println!(
        "{} prompts of {} to {} tokens, {} in all (published: {PROMPT_TOKENS}); {} tokens of answers (published: 150,142 to 157,004)",
        requests.len(),
        prompts.iter().min().unwrap(),
        prompts.iter().max().unwrap(),
        prompts.iter().sum::<u32>(),
        requests.iter().map(|r| r.output_tokens).sum::<u32>(),
    );
}

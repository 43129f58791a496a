//! Conversations: each starts from one of a few shared documents, and every turn resends the history.
//!
//! Over `/v1/chat/completions` the history holds the engine's own answers. Over `/v1/completions` it holds drawn ids of the
//! answer's length, since the engine's ids are not known to the client. A later turn is due a think time after the answer
//! before it ended. That is how people behave, and why its time is not known in advance.

use autotune_numerics::seeds::mix;
use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use super::content::{Ask, Content};
use super::dialogue::{Dialogue, Dialogues, answered_tokens};
use super::draw::{Purpose, length, length_at, stream};
use super::pace::Pace;
use super::planned::{Message, Prompt};
use super::text::{Pen, Piece, less};
use super::vocabulary::Vocabulary;
use autotune_plan::settings::{ConversationsPlan, WorkloadPlan};
use autotune_records::units::Seconds;

/// What the later turns of a conversation are drawn from.
struct Draws {
    lengths: ChaCha8Rng,
    content: ChaCha8Rng,
}

type Conversation = Dialogue<Draws>;

pub(super) struct Conversations {
    plan: ConversationsPlan,
    /// Without it an answer may be shorter than was asked for.
    ignore_eos: bool,
    pen: Pen,
    vocabulary: Vocabulary,
    pace: Pace,
    dialogues: Dialogues<Draws>,
}

impl Conversations {
    pub(super) fn new(
        plan: ConversationsPlan,
        workload: &WorkloadPlan,
        vocabulary: &Vocabulary,
        pen: Pen,
        pace: &Pace,
    ) -> Self {
        let (ignore_eos, vocabulary) = (workload.ignore_eos, vocabulary.clone());
        Self { plan, ignore_eos, pen, vocabulary, pace: *pace, dialogues: Dialogues::new() }
    }

    fn start(&mut self) -> Conversation {
        let number = self.dialogues.number();
        let (which, mut lengths) = self.starter_and_lengths(number);
        let mut content = stream(self.pace.content_seed, Purpose::Content, number);
        let (starter, starter_tokens) = starter(&self.plan, &self.pen, self.pace.shared_seed, which);
        let starter_words = starter_words(starter_tokens, &self.pen);
        let mut prompt = starter.into_prompt("system");
        let (question, output_tokens) = self.exchange(&mut lengths);
        let question = less(starter_tokens.saturating_add(question), starter_words + self.pen.led());
        prompt.push("user", self.pen.draw(question, &mut content));
        let tokens = starter_words + question + self.pen.led();
        Dialogue {
            number,
            turn: 0,
            prompt,
            tokens,
            seen: starter_tokens,
            output_tokens,
            origin: Draws { lengths, content },
        }
    }

    /// Which starter the conversation with that number has, and the stream of its lengths.
    fn starter_and_lengths(&self, number: u32) -> (u32, ChaCha8Rng) {
        let mut lengths = stream(self.pace.arrival_seed, Purpose::Lengths, number);
        (lengths.random_range(0..self.plan.starters), lengths)
    }

    /// The tokens of the next question, and of its answer.
    fn exchange(&self, lengths: &mut ChaCha8Rng) -> (u32, u32) {
        (length(&self.plan.question_tokens, lengths), length(&self.plan.output_tokens, lengths))
    }

    /// The tokens of the answer before a turn of the conversation with that number.
    fn awaited(&self, number: u32, turn: u32) -> u32 {
        let (_, mut lengths) = self.starter_and_lengths(number);
        (0..turn).fold(0, |_, _| self.exchange(&mut lengths).1)
    }

    fn imagine_answer(&self, conversation: &mut Conversation) {
        let tokens = self.pen.resent().tokens(conversation.output_tokens);
        let answer = self.pen.draw(tokens, &mut conversation.origin.content);
        conversation.prompt.push("assistant", answer);
        conversation.tokens += tokens;
    }

    /// Whether the engine still has the answers of a conversation when they are sent back.
    fn is_found(&self, number: u32) -> bool {
        let drawn = (mix(self.pace.content_seed, &[u64::from(number)]) >> 11) as f64 / (1_u64 << 53) as f64;
        drawn < self.pen.resent().found
    }

    /// The next turn's question, after the history already holds the answer.
    fn advance(&self, conversation: &mut Conversation) {
        conversation.turn += 1;
        let (question, output_tokens) = self.exchange(&mut conversation.origin.lengths);
        let question = less(question, self.pen.exchange());
        conversation.tokens += question + self.pen.exchange();
        let question = self.pen.draw(question, &mut conversation.origin.content);
        conversation.prompt.push("user", question);
        conversation.output_tokens = output_tokens;
    }
}

impl Content for Conversations {
    fn open(&mut self) -> Option<Ask> {
        let conversation = self.start();
        Some(self.dialogues.ask(conversation, self.plan.turns))
    }

    fn turns(&self) -> u32 {
        self.plan.turns
    }

    fn think_time(&self) -> Seconds {
        self.plan.think_time.into()
    }

    fn begun(&mut self, turn: u32, wanted: &mut dyn FnMut(u32) -> bool) -> Option<u32> {
        // A burst wants few of many thousands: only these have their words drawn.
        if !wanted(self.awaited(self.dialogues.begun, turn)) {
            self.dialogues.number();
            return None;
        }
        // Its history was never sent: only the starter is shared.
        let mut conversation = self.start();
        while conversation.turn < turn {
            self.imagine_answer(&mut conversation);
            self.advance(&mut conversation);
        }
        Some(self.dialogues.keep(conversation))
    }

    fn answered(&mut self, conversation: u32, text: Option<&str>) -> bool {
        // A failed turn ends its conversation, as it does for a person.
        let (Some(mut conversation), Some(text)) = (self.dialogues.take(conversation), text) else { return false };
        let before = conversation.tokens;
        match &mut conversation.prompt {
            Prompt::Messages(messages) if !self.pen.is_dry() => {
                messages.push(Message { role: "assistant", content: text.to_owned() });
                let most = conversation.output_tokens;
                conversation.tokens += answered_tokens(text, most, self.ignore_eos, &self.vocabulary);
            }
            // Nobody wrote an answer that is sent as token ids, or replayed.
            _ => self.imagine_answer(&mut conversation),
        }
        conversation.seen = if self.is_found(conversation.number) { conversation.tokens } else { before };
        self.advance(&mut conversation);
        self.dialogues.keep(conversation);
        true
    }

    fn next_turn(&mut self, conversation: u32) -> Option<Ask> {
        let conversation = self.dialogues.take(conversation)?;
        Some(self.dialogues.ask(conversation, self.plan.turns))
    }
}

/// Half of what the template adds to two messages lies within the starter.
fn starter_words(tokens: u32, pen: &Pen) -> u32 {
    less(tokens, pen.led() / 2)
}

/// A starter and the tokens that it is meant to have: the middle of its own part of the distribution. So the mean length does not depend on the seed.
/// Of ten that were drawn apart, it explained 77 % of how the limits of 20 seeds differed (`docs/results.md`, the search).
fn starter(plan: &ConversationsPlan, pen: &Pen, seed: u64, which: u32) -> (Piece, u32) {
    let mut rng = stream(seed, Purpose::Shared, which);
    let share = (f64::from(which) + 0.5) / f64::from(plan.starters);
    let tokens = length_at(&plan.starter_tokens, share);
    (pen.draw(starter_words(tokens, pen), &mut rng), tokens)
}

pub(super) fn shared(plan: &ConversationsPlan, pen: &Pen, seed: u64) -> Vec<Prompt> {
    (0..plan.starters).map(|which| starter(plan, pen, seed, which).0.into_prompt("system")).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::{conversations, drive, exact, material, open};
    use super::super::{Material, Planned, Turn, shared_prompts, source};
    use super::*;
    use autotune_plan::settings::{Endpoint, LengthShape, Lengths, WorkloadKind};

    fn plan(endpoint: Endpoint) -> WorkloadPlan {
        WorkloadPlan { endpoint, ..conversations() }
    }

    fn sent(endpoint: Endpoint, rate: f64, horizon: f64) -> Vec<Planned> {
        drive(source(&plan(endpoint), &material(), open(rate, horizon)), Some("a word or two"))
    }

    fn ids(planned: &Planned) -> Vec<u32> {
        if let Prompt::Tokens(ids) = &planned.prompt { ids.clone() } else { panic!("completions take ids") }
    }

    #[test]
    fn turns_resend_their_history_after_a_think_time() {
        let sent = sent(Endpoint::Completions, 4.0, 60.0);
        let mut later_turns = 0;
        for (i, first) in sent.iter().enumerate() {
            let turn = first.turn.unwrap();
            assert_eq!(ids(first).len(), 100 + 10 + 30 * turn.turn as usize);
            assert_eq!(ids(first).len(), first.prompt_tokens as usize);
            let follow_up =
                |p: &&Planned| p.turn == Some(Turn { conversation: turn.conversation, turn: turn.turn + 1 });
            if let Some(next) = sent[i..].iter().find(follow_up) {
                assert!(ids(next).starts_with(&ids(first)), "the history is resent");
                assert_eq!(next.shared_tokens, first.prompt_tokens, "imagined answers were never in the engine");
                assert!((next.due.0 - first.due.0 - 3.0).abs() < 1e-6, "two seconds of answer, one of thought");
                later_turns += 1;
            }
        }
        assert!(later_turns > 100);
        assert!(sent.iter().filter(|p| p.turn.unwrap().turn == 0).all(|p| p.shared_tokens == 100), "the starter");
    }

    #[test]
    fn a_few_starters_are_as_long_on_average_as_their_distribution_says() {
        let starter_tokens = Lengths { shape: LengthShape::Normal { mean: 150.0, sd: 30.0 }, min: 50, max: 250 };
        let WorkloadKind::Conversations(kind) = conversations().kind else { panic!("conversations") };
        let kind = WorkloadKind::Conversations(ConversationsPlan { starters: 10, starter_tokens, ..kind });
        let plan = WorkloadPlan { kind, ..conversations() };
        let tokens = |prompt| if let Prompt::Tokens(ids) = prompt { ids.len() } else { panic!("completions take ids") };
        let lengths: Vec<usize> = shared_prompts(&plan, &material(), 7).into_iter().map(tokens).collect();
        let mean = lengths.iter().sum::<usize>() as f64 / 10.0;
        assert!((mean - 150.0).abs() < 1.0 && lengths[9] - lengths[0] > 90, "{lengths:?}");
    }

    #[test]
    fn the_rate_is_that_of_requests_and_holds_from_the_first_second() {
        let sent = sent(Endpoint::Completions, 20.0, 200.0);
        let rate =
            |from: f64, to: f64| sent.iter().filter(|p| (from..to).contains(&p.due.0)).count() as f64 / (to - from);
        assert!((rate(0.0, 200.0) - 20.0).abs() < 2.0, "{}", rate(0.0, 200.0));
        assert!((rate(0.0, 10.0) - 20.0).abs() < 6.0, "{}", rate(0.0, 10.0));
    }

    #[test]
    fn a_short_probe_sends_what_a_longer_one_begins_with() {
        let (short, long) = (sent(Endpoint::Chat, 8.0, 2.0), sent(Endpoint::Chat, 8.0, 60.0));
        assert!(short.iter().any(|p| p.turn.unwrap().turn > 1), "some are under way");
        let begins: Vec<Planned> = long.into_iter().filter(|p| p.due.0 < 2.0).collect();
        assert_eq!(short, begins);
    }

    #[test]
    fn a_conversation_that_is_left_out_changes_no_other() {
        let plan = plan(Endpoint::Chat);
        let WorkloadKind::Conversations(kind) = plan.kind.clone() else { panic!("conversations") };
        let pen = Pen::new(Endpoint::Chat, &material().vocabulary);
        let begun = |wanted: bool| {
            let pace = open(4.0, 60.0);
            let mut content = Conversations::new(kind.clone(), &plan, &material().vocabulary, pen.clone(), &pace);
            let mut awaited = Vec::new();
            content.begun(2, &mut |tokens| (awaited.push(tokens), wanted).1);
            content.begun(3, &mut |tokens| (awaited.push(tokens), true).1);
            // What is awaited is the answer that was asked for.
            let before = content.awaited(2, 1);
            assert_eq!(content.open().unwrap().output_tokens, before);
            content.answered(2, Some("word"));
            let before = content.awaited(2, 2);
            assert_eq!(content.next_turn(2).unwrap().output_tokens, before);
            (awaited, content.next_turn(1))
        };
        let (with, without) = (begun(true), begun(false));
        assert!(with == without && with.1.is_some(), "{with:?} {without:?}");
    }

    #[test]
    fn chat_histories_hold_the_engines_own_answers_and_failures_end_a_conversation() {
        let mut source = source(&plan(Endpoint::Chat), &material(), open(1.0, 60.0));
        let first = source.take().unwrap();
        source.answered(first.id, first.due, Some("forty two"));
        let conversation = first.turn.unwrap().conversation;
        let next = loop {
            let planned = source.take().unwrap();
            if planned.turn.unwrap().conversation == conversation {
                break planned;
            }
        };
        assert_eq!(next.shared_tokens, first.prompt_tokens + first.output_tokens, "all but the new question");
        let Prompt::Messages(messages) = &next.prompt else { panic!("chat takes messages") };
        assert!(messages.iter().any(|m| m.role == "assistant" && m.content == "forty two"));
        source.answered(next.id, next.due, None);
        let later: Vec<u32> = std::iter::from_fn(|| source.take()).map(|p| p.turn.unwrap().conversation).collect();
        assert!(!later.contains(&conversation));
    }

    /// Chat with questions of 15 tokens and answers of 20, at a pace. Answers have as many words as were asked for, as with an engine that ignores
    /// the end of sequence.
    fn with_exact_words(pace: Pace) -> Vec<Planned> {
        let material = Material { vocabulary: exact(), ..material() };
        let mut plan = plan(Endpoint::Chat);
        if let WorkloadKind::Conversations(kind) = &mut plan.kind {
            kind.question_tokens.min = 15;
            kind.question_tokens.max = 15;
        }
        let answer = vec!["word"; 20].join(" ");
        drive(source(&plan, &material, pace), Some(&answer))
    }

    #[test]
    fn histories_that_begin_in_mid_life_are_as_long_as_answers_come_back() {
        let tokens = |endpoint, growth| {
            let pace = Pace { growth, ..open(4.0, 1.0) };
            let sent = match endpoint {
                Endpoint::Chat => with_exact_words(pace),
                Endpoint::Completions => drive(source(&plan(endpoint), &material(), pace), None),
            };
            let third = sent.iter().find(|p| p.turn.unwrap().turn == 3).unwrap();
            third.prompt_tokens
        };
        assert_eq!([1.0, 0.5].map(|growth| tokens(Endpoint::Chat, growth)), [220, 190]);
        assert_eq!(
            tokens(Endpoint::Completions, 1.0),
            tokens(Endpoint::Completions, 0.5),
            "drawn ids keep their length"
        );
    }

    #[test]
    fn with_an_exact_vocabulary_every_turn_has_its_length() {
        let sent = with_exact_words(open(4.0, 30.0));
        for planned in &sent {
            let Prompt::Messages(messages) = &planned.prompt else { panic!("chat takes messages") };
            let words: usize = messages.iter().map(|m| m.content.split(' ').count()).sum();
            let turn = planned.turn.unwrap().turn;
            // The template of the tests: three tokens before everything, five around each message.
            assert_eq!(words as u32 + 3 + 5 * messages.len() as u32, planned.prompt_tokens);
            assert_eq!(planned.prompt_tokens, 100 + 15 + turn * (20 + 15));
        }
        assert!(sent.iter().any(|p| p.turn.unwrap().turn == 3));
    }
}

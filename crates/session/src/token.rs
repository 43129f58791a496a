//! The token of a run: whoever lends an engine asks for it, and whoever leads shows it.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};

use ring::digest::{SHA256, digest};

/// The variable that may hold it. An engine does not inherit it.
pub const VARIABLE: &str = "AUTOTUNE_TOKEN";

/// Fewer characters can be tried one after the other.
const SHORTEST: usize = 16;
/// A header holds some kilobytes.
const LONGEST: usize = 1_024;
/// Random bytes of a token that is made here.
const DRAWN: usize = 32;

/// A password that both sides of a connection have.
#[derive(Clone)]
pub struct Token(String);

impl fmt::Debug for Token {
    /// Never shows the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

impl Token {
    /// As it stands in a file or a variable; space around it is no part of it.
    ///
    /// # Errors
    /// Of one that is too short or cannot be sent, without repeating it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if !(SHORTEST..=LONGEST).contains(&text.len()) {
            return Err(format!("a token has {SHORTEST} to {LONGEST} characters, and this one {}", text.len()));
        }
        if !text.bytes().all(|b| b.is_ascii_graphic()) {
            return Err("a token has letters, digits and signs of ASCII alone, and no space in it".to_owned());
        }
        Ok(Self(text.to_owned()))
    }

    /// A new one, as nobody can guess.
    pub fn draw() -> io::Result<Self> {
        let mut drawn = [0; DRAWN];
        File::open("/dev/urandom")?.read_exact(&mut drawn)?;
        Ok(Self(drawn.iter().map(|byte| format!("{byte:02x}")).collect()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether this is what somebody shows. How long that takes tells nothing of how much of it is right.
    pub fn is(&self, shown: &str) -> bool {
        let (ours, theirs) = (digest(&SHA256, self.0.as_bytes()), digest(&SHA256, shown.as_bytes()));
        let pairs = ours.as_ref().iter().zip(theirs.as_ref());
        pairs.fold(0, |differs, (a, b)| std::hint::black_box(differs | (a ^ b))) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_long_enough_and_can_be_sent() {
        assert_eq!(Token::parse(" 0123456789abcdef\n").unwrap().as_str(), "0123456789abcdef");
        for (text, part) in [
            ("", "and this one 0"),
            ("0123456789abcde", "16 to 1024"),
            ("0123456789 abcdef", "space"),
            ("grüßgrüßgrüß", "ASCII"),
        ] {
            let says = Token::parse(text).unwrap_err();
            assert!(says.contains(part) && (text.is_empty() || !says.contains(text)), "{says}");
        }
    }

    #[test]
    fn every_character_counts_and_none_is_shown() {
        let token = Token::draw().unwrap();
        let text = token.as_str().to_owned();
        assert!(text.len() == 2 * DRAWN && Token::parse(&text).is_ok());
        assert!(token.is(&text) && !token.is("") && !token.is(&text[1..]) && !token.is(&format!("{text}0")));
        for at in 0..text.len() {
            let mut other = text.clone().into_bytes();
            other[at] ^= 1;
            assert!(!token.is(std::str::from_utf8(&other).unwrap()), "{at}");
        }
        assert!(!token.is(Token::draw().unwrap().as_str()), "no two are the same");
        assert!(!format!("{token:?}").contains(&text));
    }
}

//! How much each fact about a candidate cause counts where evidence is weighed: `data/weighing.txt`, learnt by
//! `cargo xtask weighing` from cases whose cause is known.
//!
//! A candidate is a cause that a rule found, that the words resemble or that a statement suggests, or health. Its odds are
//! the sum of its features, each times its weight; their logistic function is the share of such candidates that were right.

use std::sync::OnceLock;

static COMPILED: &str = include_str!("../data/weighing.txt");
static TABLE: OnceLock<Vec<f32>> = OnceLock::new();

macro_rules! features {
    ($($variant:ident $name:literal $says:literal)*) => {
        /// A fact about a candidate.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Feature {
            $(#[doc = $says] $variant,)*
        }

        impl Feature {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// Its name in the table.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// What it says of the candidate, in words.
            pub fn says(self) -> &'static str {
                match self { $(Self::$variant => $says,)* }
            }
        }
    };
}

features! {
    Fault "fault" "it is a fault"
    Words "words" "how much the words resemble it"
    WordsGap "words-gap" "the words resemble another cause more"
    WordsOverHealth "words-over-health" "the words resemble it more than health"
    WordsFirst "words-first" "the words resemble no cause more"
    WordsSecond "words-second" "the words resemble one cause more"
    WordsMargin "words-margin" "the words resemble the next cause less"
    WordsFew "words-few" "few words tell"
    WordsOfTools "words-of-tools" "its words are from tools"
    WordsRead "words-read" "its words are in sources whose every line is known"
    WordsOfEvents "words-of-events" "its words are in lines that rules know"
    End "end" "it says how a process ended, not why"
    Found "found" "a rule found it"
    FoundDecisive "found-decisive" "a rule found it, and not as an aside"
    FoundHigh "found-high" "a rule is sure of it"
    FoundMedium "found-medium" "a rule thinks so"
    FoundLow "found-low" "a rule suspects it"
    FoundEcho "found-echo" "a rule found it as an echo"
    FoundSymptom "found-symptom" "a rule found it as a symptom"
    FoundDerived "found-derived" "a rule derived it"
    FoundStated "found-stated" "a failing rank states it, or records prove it"
    FoundWarning "found-warning" "a rule found it as a warning"
    FoundRank "found-rank" "a rule names a rank"
    FoundFormed "found-formed" "a rule found it in stacks or tables"
    FoundByTable "found-by-table" "a known message names it"
    First "first" "the rules put it first"
    FirstHigh "first-high" "the rules are sure of it"
    FirstMedium "first-medium" "the rules think so"
    FirstLow "first-low" "the rules suspect it"
    FirstSymptom "first-symptom" "the rules put it first as a symptom"
    FirstDerived "first-derived" "the rules put it first as derived"
    FirstStated "first-stated" "the rules put it first as stated"
    FoundEnd "found-end" "a rule found how a process ended"
    FoundEndHigh "found-end-high" "a rule is sure how a process ended"
    FoundEndMedium "found-end-medium" "a rule thinks how a process ended"
    Suggested "suggested" "an unexplained statement suggests it"
    SuggestedFirst "suggested-first" "unexplained statements suggest it first"
    HangTimedOut "hang-timed-out" "a hang, and the job timed out"
    HangRunning "hang-running" "a hang, and steps advance"
    CrashRunning "crash-running" "a crash, and steps advance"
    SlowFailed "slow-failed" "slowness, and the job failed"
    SlowMeasured "slow-measured" "slowness, and something was measured"
    Healthy "healthy" "it is health"
    Health "health" "how much the words resemble health"
    HealthLead "health-lead" "the words resemble health more than any cause"
    HealthFew "health-few" "few words tell of health"
    SignMachine "sign-machine" "tables of a machine in which nothing is wrong"
    SignCommunicator "sign-communicator" "a communicator was created"
    SignMeasured "sign-measured" "a measurement"
    SignCalls "sign-calls" "NCCL logged its calls"
    SignSteps "sign-steps" "steps advance"
    SignEnded "sign-ended" "a program says that it is done"
    SignWatched "sign-watched" "a collector looked at the job"
    SignRecorded "sign-recorded" "a recorder kept its operations"
    SignNone "sign-none" "no sign of health"
    ClearRules "clear-rules" "the rules found nothing that stands against health"
    AgainstHigh "against-high" "a rule is sure of a fault"
    AgainstMedium "against-medium" "a rule thinks that there is a fault"
    AgainstLow "against-low" "a rule suspects a fault"
    AgainstError "against-error" "a rule found an error"
    AgainstFindings "against-findings" "rules found something"
    AgainstKnown "against-known" "statements of failure that a row knows are unexplained"
    AgainstStrong "against-strong" "plain statements of failure are unexplained"
    AgainstWeak "against-weak" "other statements of failure are unexplained"
    AgainstTrouble "against-trouble" "signs of trouble"
    AgainstFailed "against-failed" "the job failed"
    AgainstStacks "against-stacks" "somebody took stacks"
    AgainstUnseen "against-unseen" "parts of the job were not seen"
    HealthOfTools "health-of-tools" "nothing but tools was given"
}

fn table() -> &'static [f32] {
    TABLE.get_or_init(|| read(COMPILED).unwrap_or_default())
}

fn read(text: &str) -> Option<Vec<f32>> {
    let mut weights = vec![0.0; Feature::ALL.len()];
    for line in text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        let (name, weight) = line.split_once('\t')?;
        let feature = Feature::ALL.iter().find(|feature| feature.name() == name)?;
        *weights.get_mut(*feature as usize)? = weight.parse().ok()?;
    }
    Some(weights)
}

/// What one unit of a feature adds to the odds (natural logarithm).
pub fn weight(feature: Feature) -> f32 {
    table().get(feature as usize).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::{COMPILED, Feature, read, weight};

    #[test]
    fn every_feature_has_a_weight() {
        assert!(read(COMPILED).is_some());
        let named = |name: &str| COMPILED.lines().any(|l| l.split('\t').next() == Some(name));
        for feature in Feature::ALL {
            assert!(named(feature.name()), "{} has no row", feature.name());
        }
        assert!(weight(Feature::Words) > 0.0 && weight(Feature::Health) > 0.0);
    }
}

//! Enums whose variants are the words that a parameter accepts.

/// Declares an enum whose variants are the words that a parameter accepts.
#[macro_export]
macro_rules! words {
    (
        $(#[$meta:meta])*
        $vis:vis enum $name:ident { $($(#[$doc:meta])* $variant:ident = $word:literal,)+ }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        $vis enum $name {
            $($(#[$doc])* $variant,)+
        }

        impl $name {
            /// The words, as they appear in parameter values.
            $vis const NAMES: &[&str] = &[$($word),+];

            /// Returns the variant that a word stands for.
            $vis fn named(word: &str) -> Option<Self> {
                match word {
                    $($word => Some(Self::$variant),)+
                    _ => None,
                }
            }

            /// Returns the word of a variant.
            #[allow(dead_code)] // Not every enum is converted back to words.
            $vis fn name(self) -> &'static str {
                Self::NAMES[self as usize]
            }
        }
    };
}

//! Enums that are spelled as words: the values of parameters.

/// An enum whose variants are the words of a parameter, each word beside its variant.
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
            /// The words, as parameters spell them.
            $vis const NAMES: &[&str] = &[$($word),+];

            /// The variant of a word.
            $vis fn named(word: &str) -> Option<Self> {
                match word {
                    $($word => Some(Self::$variant),)+
                    _ => None,
                }
            }

            /// The word of a variant.
            #[allow(dead_code)] // few parameters are written back
            $vis fn name(self) -> &'static str {
                Self::NAMES[self as usize]
            }
        }
    };
}

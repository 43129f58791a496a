//! Declares what a section holds. Each key stands once: its documentation, name, type, kind and default.

/// Makes three things of a list of keys: the struct of the plan, the rows of [`super::format`], and the function that reads the struct.
///
/// `NAME: TYPE = [ROW, ROW]` is a key with a row for each group of variants; `[]` is a field that is no key. `of` names the variants of all rows,
/// and `where` an attribute of the field. `read by` names a function of all keys, for a field that depends on more than its own.
macro_rules! plan {
    (
        $(#[$outer:meta])*
        pub struct $plan:ident of $variants:expr, rows $rows:ident {
            $(
                #[doc = $doc:literal]
                $field:ident: $type:ty $(where $attribute:meta)? = [$($row:expr),*] $(, read by $read:expr)?;
            )*
        }
    ) => {
        $(#[$outer])*
        #[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
        pub struct $plan {
            $(
                #[doc = $doc]
                $(#[$attribute])?
                pub $field: $type,
            )*
        }

        pub(super) const $rows: &[$crate::settings::format::Key] =
            &[$($($row.named(stringify!($field), $doc).within($variants),)*)*];

        impl $plan {
            /// The plan; `None` where a value was refused.
            pub(super) fn read(fields: &$crate::settings::reader::Fields) -> Option<Self> {
                Some(Self { $($field: $crate::settings::declared::plan!(@read fields, $field $(, $read)?),)* })
            }
        }
    };
    (@read $fields:ident, $field:ident) => { $fields.get(stringify!($field))? };
    (@read $fields:ident, $field:ident, $read:expr) => { $read($fields)? };
}
pub(super) use plan;

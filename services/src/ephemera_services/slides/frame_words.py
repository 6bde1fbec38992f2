"""The words that a deck has besides those of its documents, in the languages that we know them in."""

from __future__ import annotations

from typing import NamedTuple


class Part(NamedTuple):
    """A slide of a skeleton, and what to write on it."""

    title: str
    hints: tuple[str, ...]


class FrameWords(NamedTuple):
    """The words of one language."""

    agenda: str
    sources: str
    to_write: str
    is_skeleton: str
    no_sources: str
    parts: tuple[Part, ...]


_ENGLISH = FrameWords(
    "Agenda",
    "Sources",
    "To be written",
    "This is a skeleton: there are no documents to quote, and no model is configured.",
    "No documents were given.",
    (
        Part("Background", ("what led here", "who is concerned", "the figures that matter")),
        Part("The question", ("what has to be decided", "by whom, and until when")),
        Part("What is known", ("the facts, with their sources", "what was tried before")),
        Part("What is open", ("what has not been measured yet", "risks, and how likely they are")),
        Part("Options", ("each option in a sentence", "what it costs, and what it brings")),
        Part("Next steps", ("who does what", "the date of the next decision")),
    ),
)


def _translated(
    agenda: str, sources: str, to_write: str, skeleton: str, none: str, *parts: str
) -> FrameWords:
    """A language; each part is its title and its hints, separated by `|`."""
    split = (part.split("|") for part in parts)
    return FrameWords(
        agenda, sources, to_write, skeleton, none, tuple(Part(title, tuple(hints)) for title, *hints in split)
    )


_LANGUAGES = {
    "en": _ENGLISH,
    "de": _translated(
        "Inhalt", "Quellen", "Noch zu schreiben",
        "Dies ist ein Gerüst: Es gibt keine Dokumente zum Zitieren, und kein Modell ist konfiguriert.",
        "Es wurden keine Dokumente angegeben.",
        "Hintergrund|was dazu geführt hat|wen es betrifft",
        "Die Frage|was zu entscheiden ist|von wem und bis wann",
        "Was bekannt ist|die Fakten mit Quellen", "Was offen ist|Risiken und Wahrscheinlichkeiten",
        "Möglichkeiten|jede in einem Satz|Kosten und Nutzen",
        "Nächste Schritte|wer was tut|der nächste Termin",
    ),
    "ru": _translated(
        "Содержание", "Источники", "Нужно написать",
        "Это заготовка: нет документов для цитирования и не настроена модель.", "Документы не указаны.",
        "Предыстория|что к этому привело|кого это касается", "Вопрос|что нужно решить|кем и к какому сроку",
        "Что известно|факты с источниками", "Что неизвестно|риски и их вероятность",
        "Варианты|каждый одним предложением|затраты и выгоды", "Следующие шаги|кто и что делает|дата решения",
    ),
    "pl": _translated(
        "Plan", "Źródła", "Do napisania",
        "To jest szkielet: nie ma dokumentów do cytowania i nie skonfigurowano modelu.",
        "Nie podano dokumentów.",
        "Tło|co do tego doprowadziło|kogo to dotyczy", "Pytanie|co trzeba rozstrzygnąć|kto i do kiedy",
        "Co wiadomo|fakty ze źródłami", "Co pozostaje otwarte|ryzyka i ich prawdopodobieństwo",
        "Możliwości|każda w jednym zdaniu|koszty i korzyści", "Następne kroki|kto co robi|data decyzji",
    ),
    "cs": _translated(
        "Obsah", "Zdroje", "Doplnit",
        "Toto je kostra: nejsou dokumenty k citování a není nastaven model.",
        "Nebyly zadány žádné dokumenty.",
        "Souvislosti|co k tomu vedlo|koho se to týká", "Otázka|co je třeba rozhodnout|kdo a do kdy",
        "Co víme|fakta se zdroji", "Co nevíme|rizika a jejich pravděpodobnost",
        "Možnosti|každá jednou větou|náklady a přínosy", "Další kroky|kdo co udělá|datum rozhodnutí",
    ),
    "tr": _translated(
        "İçindekiler", "Kaynaklar", "Yazılacak",
        "Bu bir taslaktır: alıntılanacak belge yok ve bir model ayarlanmadı.", "Belge verilmedi.",
        "Arka plan|buraya nasıl gelindi|kimleri ilgilendiriyor",
        "Soru|neye karar verilecek|kim tarafından ve ne zamana kadar",
        "Bilinenler|kaynaklarıyla olgular", "Bilinmeyenler|riskler ve olasılıkları",
        "Seçenekler|her biri bir cümleyle|maliyet ve yarar", "Sonraki adımlar|kim ne yapacak|karar tarihi",
    ),
    "el": _translated(
        "Περιεχόμενα", "Πηγές", "Να γραφτεί",
        "Αυτός είναι ένας σκελετός: δεν υπάρχουν έγγραφα προς παράθεση ούτε ρυθμισμένο μοντέλο.",
        "Δεν δόθηκαν έγγραφα.",
        "Ιστορικό|τι οδήγησε εδώ|ποιους αφορά", "Το ερώτημα|τι πρέπει να αποφασιστεί|από ποιον και έως πότε",
        "Τι γνωρίζουμε|τα γεγονότα με τις πηγές τους", "Τι μένει ανοιχτό|κίνδυνοι και πιθανότητες",
        "Επιλογές|καθεμία σε μία πρόταση|κόστος και όφελος",
        "Επόμενα βήματα|ποιος κάνει τι|ημερομηνία απόφασης",
    ),
}  # fmt: skip


def frame_words(language: str) -> FrameWords:
    """The words of a language, by its code (`ru`, `pt-BR`); English if we do not know it."""
    return _LANGUAGES.get(language[:2].lower(), _ENGLISH)

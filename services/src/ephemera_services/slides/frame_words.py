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
    "fr": _translated(
        "Plan", "Sources", "À écrire",
        "Ceci est un canevas : il n'y a pas de documents à citer et aucun modèle n'est configuré.",
        "Aucun document n'a été fourni.",
        "Contexte|ce qui a mené ici|qui est concerné",
        "La question|ce qu'il faut décider|par qui et pour quand",
        "Ce que l'on sait|les faits avec leurs sources",
        "Ce qui reste ouvert|les risques et leur probabilité",
        "Options|chacune en une phrase|coûts et bénéfices",
        "Prochaines étapes|qui fait quoi|la date de la décision",
    ),
    "es": _translated(
        "Índice", "Fuentes", "Por escribir",
        "Esto es un esquema: no hay documentos que citar ni un modelo configurado.",
        "No se indicó ningún documento.",
        "Antecedentes|qué llevó hasta aquí|a quién afecta",
        "La pregunta|qué hay que decidir|quién y hasta cuándo",
        "Lo que se sabe|los hechos con sus fuentes", "Lo que queda abierto|riesgos y su probabilidad",
        "Opciones|cada una en una frase|costes y beneficios",
        "Próximos pasos|quién hace qué|la fecha de la decisión",
    ),
    "it": _translated(
        "Indice", "Fonti", "Da scrivere",
        "Questo è uno schema: non ci sono documenti da citare e nessun modello è configurato.",
        "Non è stato indicato alcun documento.",
        "Contesto|che cosa ha portato fin qui|chi è coinvolto",
        "La domanda|che cosa va deciso|da chi ed entro quando",
        "Che cosa si sa|i fatti con le fonti", "Che cosa resta aperto|i rischi e la loro probabilità",
        "Opzioni|ciascuna in una frase|costi e benefici",
        "Prossimi passi|chi fa che cosa|la data della decisione",
    ),
    "pt": _translated(
        "Índice", "Fontes", "Por escrever",
        "Isto é um esboço: não há documentos para citar nem um modelo configurado.",
        "Não foi indicado nenhum documento.",
        "Contexto|o que levou até aqui|quem é afetado",
        "A questão|o que é preciso decidir|por quem e até quando",
        "O que se sabe|os factos com as fontes", "O que está em aberto|riscos e a sua probabilidade",
        "Opções|cada uma numa frase|custos e benefícios",
        "Próximos passos|quem faz o quê|a data da decisão",
    ),
    "uk": _translated(
        "Зміст", "Джерела", "Потрібно написати",
        "Це заготовка: немає документів для цитування і не налаштовано модель.", "Документів не вказано.",
        "Передісторія|що до цього призвело|кого це стосується",
        "Питання|що потрібно вирішити|хто і до якого терміну",
        "Що відомо|факти з джерелами", "Що невідомо|ризики та їхня ймовірність",
        "Варіанти|кожен одним реченням|витрати й вигоди", "Наступні кроки|хто і що робить|дата рішення",
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
    "zh": _translated(
        "目录", "来源", "待撰写", "这是一个框架：没有可引用的文档，也没有配置模型。", "没有提供文档。",
        "背景|事情的由来|涉及哪些人", "问题|需要决定什么|由谁决定，何时决定", "已知情况|事实及其来源",
        "未知情况|风险及其可能性", "方案|每个方案一句话|成本与收益", "下一步|谁做什么|决定的日期",
    ),
    "ja": _translated(
        "目次", "出典", "要執筆", "これは骨組みです。引用する文書がなく、モデルも設定されていません。",
        "文書は指定されていません。",
        "背景|これまでの経緯|関係する人", "問い|何を決めるか|誰がいつまでに",
        "わかっていること|事実とその出典", "わかっていないこと|リスクとその可能性",
        "選択肢|それぞれを一文で|費用と効果", "次のステップ|誰が何をするか|決定の日",
    ),
}  # fmt: skip


def frame_words(language: str) -> FrameWords:
    """The words of a language, by its code (`ru`, `pt-BR`); English if we do not know it."""
    return _LANGUAGES.get(language[:2].lower(), _ENGLISH)

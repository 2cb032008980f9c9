"""What one thing has one of, and what it may have several of: words, by what they tell.

English words are stems, as `embedders.lexical.tokenize` makes them. Korean verbs stand with all
forms of their stem; in Chinese, and in the texts that are searched for parts, any form will do.
The lists are short on purpose: a word that is not in one leads to two records, never to a loss.
"""

from __future__ import annotations

from mnemotrace.facts import word_set

from .clauses import Clause, Keys, hangul_keys


def _korean(verbs: str) -> Keys:
    return frozenset().union(*(hangul_keys(verb) - {verb} for verb in word_set(verbs)))


MORE_OF = word_set(
    # English stems; Chinese characters
    """like love enjoy hate dislik know speak own visit read watch see buy bought eat ate drink
    drank play need want use meet met owe teach studi learn write collect take took prefer
    喜 爱 愛 有 懂 说 說 吃 喝 读 讀 看 买 買 用 好 飲 食 飼 服"""
) | _korean(
    "좋아한다 싫어한다 사랑한다 안다 마신다 먹는다 읽는다 본다 배운다 사용한다 쓴다 가진다 있다 키운다 복용한다"
)
"""Verbs after which another object is one more, not another one: who likes coffee may still like
tea."""

STATES = word_set(
    """live resid stay base locat situat host deploy run work employ keep kept store station hous
    held hang belong report marri engag assign enrol deploy sit stand park start begin end open
    close happen schedul name call cost weigh 住 坐 位 班 作 职 職 搬 部 勤 働 始"""
) | _korean(
    "산다 거주한다 근무한다 일한다 다닌다 위치한다 시작한다 끝난다 열린다 배포한다 배포된다 돌아간다 속한다"
)
"""Verbs of what one thing does in one place, at one time, or for one other."""

ATTRIBUTES = word_set(
    """status state color colour name capit price version size owner lead leader deadlin date time
    port address languag default favorit favourit prefer current main primari mode type format
    locat databas framework choic prioriti titl role budget limit url host number plan
    ceo cto cfo boss manag head chair presid captain director coach maintain spous wife husband
    employ password branch passcod"""
)
"""Stems of what one thing has one of: whatever "is" says of it, replaces what it said before."""
ATTRIBUTE_PARTS = (
    "팀장", "대표", "사장", "담당", "책임자", "회장", "이름", "색", "가격", "버전", "상태", "주소", "포트", "언어",
    "데이터베이스", "마감", "위치", "장소", "시간", "날짜", "수도", "비밀번호", "암호", "직업", "상사", "기본",
    "名字", "颜色", "价格", "状态", "负责人", "组长", "队长", "经理", "首都", "版本", "地址", "端口", "语言",
    "数据库", "框架", "截止", "时间", "地点", "最喜欢", "密码", "老板", "总裁", "主席", "默认", "预算",
    "名前", "色", "価格", "状態", "住所", "担当", "社長", "首都", "締め切り", "パスワード",
)  # fmt: skip
"""The same as parts of a text, where there are no stems."""

ROLES = word_set(
    """lead led head manag chair direct supervis overse captain coach respons charg own owner leader
    ceo cto cfo manager director chairman presid boss maintain mayor""",
)
"""Stems of what one thing has one holder of."""
ROLE_PARTS = (
    "이끈", "이끌", "맡", "담당", "책임", "지휘", "총괄", "팀장", "대표", "사장", "회장", "주장",
    "领导", "负责", "管理", "担任", "主持", "带领", "组长", "队长", "经理", "总裁", "主席", "老板",
)  # fmt: skip

GROUPS = (
    word_set(
        """black white red green blue yellow orange purple violet pink brown grey gray beige gold
        golden silver turquoise"""
    ),
    word_set("small medium large big tiny huge"),
    word_set("pending running done finished failed cancelled approved rejected draft final"),
    word_set("vegetarian vegan pescatarian omnivore omnivorous"),
    word_set("single married divorced widowed engaged"),
    word_set("junior senior principal"),
    word_set("online offline"),
)
"""Properties of which one thing has one at a time."""
GROUP_PARTS = (
    ("오전", "오후"), ("上午", "下午"), ("午前", "午後"), ("미혼", "기혼"), ("单身", "已婚"),
    ("채식주의자", "비건"), ("素食", "纯素"), ("켜져", "꺼져"),
)  # fmt: skip

ARTICLES = word_set("a an the")
PREPOSITIONS = word_set("in at on for with by to from of since until")
_ANYWHERE = word_set("in at by since until")


def holds(text: str, parts: tuple[str, ...]) -> bool:
    """Tell whether a text has one of these parts in it."""
    return any(part in text for part in parts)


def one_place(clause: Clause, before: str, *, name: bool) -> bool:
    """Tell whether a clause says where one thing is, or the like: who lives in Rome left Paris.

    Args:
        before: the preposition of the place.
        name: the place is a name.
    """
    keys = clause.keys()
    if before == "of":
        return not keys.isdisjoint(ATTRIBUTES)
    if not keys.isdisjoint(STATES):
        return not ("work" in keys and before in ("on", "with"))
    copula = not {"is", "are", "am"}.isdisjoint(clause.tokens)
    return not keys.isdisjoint(ATTRIBUTES) or (copula and (name or before in _ANYWHERE))


def one_value(clause: Clause, kept: Keys, new: str) -> bool:
    """Tell the same of a clause in a language without prepositions.

    Args:
        kept: the keys of the words that stay.
        new: the text with the new value.
    """
    return (
        not kept.isdisjoint(STATES)
        or holds(clause.text, ATTRIBUTE_PARTS)
        or any(a in clause.text and b in new for pair in GROUP_PARTS for a, b in (pair, pair[::-1]))
    )


def open_on_days(clause: Clause) -> bool:
    """Tell whether a clause says when something is open or closed: on one day, and on another."""
    return not {"open", "close", "clos"}.isdisjoint(clause.keys()) and any(
        term.kind == "date" for term in clause.terms
    )

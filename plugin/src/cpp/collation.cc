/*
  Collations: weights, and a checksum that tells whether they are still the same.
*/
#include "ha_sluice.h"
#include <atomic>

/* latin2_czech_cs, cp1250_czech_cs: trailing spaces are dropped, then several passes. */
static bool is_czech(CHARSET_INFO *cs) { return cs->state & MY_CS_STRNXFRM_BAD_NWEIGHTS; }

bool sluice_is_thai(CHARSET_INFO *cs)
{
  return !strncmp(cs->coll_name.str, "tis620_thai_", strlen("tis620_thai_"));
}

uint32_t sluice_levels(CHARSET_INFO *cs)
{
  /* latin2_czech_cs puts marks between its passes: one piece. */
  if (is_czech(cs) && cs->mbmaxlen == 1 && !strcmp(cs->coll_name.str, "latin2_czech_cs"))
    return 0;
  return cs->levels_for_order > 1 ? cs->levels_for_order : 0;
}

uint32_t sluice_order_of(CHARSET_INFO *cs)
{
  if (cs == &my_charset_bin)
    return SLUICE_ORDER_BINARY;
  if (is_czech(cs))
    return SLUICE_ORDER_STRIPPED;
  return cs->state & MY_CS_NOPAD ? SLUICE_ORDER_NOPAD : SLUICE_ORDER_PAD;
}

/*
  Its own weights are counts of strokes, the same for many characters that it compares as different;
  it compares codes. As in strings/ctype-big5.c of the server.
*/
static bool is_big5_chinese(CHARSET_INFO *cs)
{
  return !strncmp(cs->coll_name.str, "big5_chinese_", strlen("big5_chinese_"));
}

static size_t big5_weights(CHARSET_INFO *cs, uint8_t *to, size_t room, const uint8_t *from,
                           size_t length)
{
  const uint8_t *end= from + length, *begin= to, *full= to + room;
  while (from < end && to < full)
  {
    const bool is_pair= my_ismbchar(cs, reinterpret_cast<const char *>(from),
                                    reinterpret_cast<const char *>(end)) == 2;
    if (*from < 0x80)
      *to++= cs->sort_order[*from++];
    else if (full - to < 2)
      break;
    else
    {
      *to++= is_pair ? *from++ : 0xff;
      *to++= *from++;
    }
  }
  return size_t(to - begin);
}

size_t sluice_weights(CHARSET_INFO *cs, uint32_t levels, uint8_t *to, size_t room,
                      const uint8_t *from, size_t length)
{
  if (!strcmp(cs->coll_name.str, "tis620_thai_nopad_ci"))
  {
    /* Its own weights are cut short; and it compares up to the first zero. */
    CHARSET_INFO *padded= &my_charset_tis620_thai_ci;
    size_t n= padded->coll->strnxfrm(padded, to, room, uint(room), from, length, 0);
    return strnlen(reinterpret_cast<const char *>(to), n);
  }
  if (is_big5_chinese(cs))
    return big5_weights(cs, to, room, from, length);
  return cs->coll->strnxfrm(cs, to, room, uint(room), from, length, levels);
}

static uint64_t mix(uint64_t sum, const uint8_t *bytes, size_t count)
{
  for (size_t i= 0; i < count; i++)
    sum= (sum ^ bytes[i]) * 0x100000001b3ULL;
  return (sum ^ count) * 0x100000001b3ULL;
}

static uint64_t add_text(uint64_t sum, CHARSET_INFO *cs, const my_wc_t *text, size_t chars)
{
  uchar bytes[32], weights[512];
  uchar *at= bytes;
  for (size_t i= 0; i < chars; i++)
  {
    int n= cs->cset->wc_mb(cs, text[i], at, bytes + sizeof bytes);
    if (n <= 0)
      return sum;
    at+= n;
  }
  const uint32_t levels= cs->levels_for_order > 1 ? cs->levels_for_order : 0;
  size_t n= sluice_weights(cs, levels, weights, sizeof weights, bytes, size_t(at - bytes));
  return mix(sum, weights, n);
}

static uint64_t compute_fingerprint(CHARSET_INFO *cs)
{
  uint64_t sum= 0xcbf29ce484222325ULL;
  sum= mix(sum, reinterpret_cast<const uint8_t *>(cs->coll_name.str), cs->coll_name.length);
  /* How keys are made of the weights: as in src/describe.rs since its levels are padded. */
  if (sluice_order_of(cs) == SLUICE_ORDER_NOPAD && cs->levels_for_order > 1)
    sum= mix(sum, reinterpret_cast<const uint8_t *>("levels"), 6);
  /* As in src/key.rs since its spaces are weighed. */
  if (sluice_is_thai(cs))
    sum= mix(sum, reinterpret_cast<const uint8_t *>("spaces"), 6);
  /* Every letter up to Georgian, then samples; pairs because they may contract. */
  for (my_wc_t wc= 1; wc < 0x110000; wc+= wc < 0x1200 ? 1 : wc < 0x10000 ? 29 : 1021)
    if (wc < 0xd800 || wc > 0xdfff)
      sum= add_text(sum, cs, &wc, 1);
  for (my_wc_t first= 'a'; first <= 'z'; first++)
    for (my_wc_t second= 'a'; second <= 'z'; second++)
    {
      my_wc_t pair[]= {first, second};
      sum= add_text(sum, cs, pair, 2);
    }
  return sum ? sum : 1;
}

uint64_t sluice_fingerprint(CHARSET_INFO *cs)
{
  static std::atomic<uint64_t> known[MY_ALL_CHARSETS_SIZE];
  std::atomic<uint64_t> &place= known[cs->number % MY_ALL_CHARSETS_SIZE];
  uint64_t sum= place.load(std::memory_order_relaxed);
  if (!sum)
  {
    sum= compute_fingerprint(cs);
    place.store(sum, std::memory_order_relaxed);
  }
  return sum;
}

-- Takes the cost of every claim if all of them have room, and nothing otherwise, by the server's clock.
-- KEYS[i]  the state of claim i
-- ARGV[1]  one letter: t (take) or p (peek, take nothing); T and P do so in the windows named whatever the time is
--          then 31 bytes for each claim: the letter of its algorithm and five numbers of six bytes, big-endian
--          f  cost limit start end expiry     ms since 1970: the window that the key names, the key's expiry
--          s  cost limit per grain 0          ms: a unit counts for `per` from the end of the grain it came in
--          b  cost burst interval parts time  us: one unit takes interval/parts to come back, all take `time`
-- RETURNS  taken: a string of six-byte numbers, now in ms, then what each claim had used before, in units, of a
--          bucket in us (strings in and out cost the server half of what lists of numbers do);
--          otherwise {1 or 0: all have room or not, now, then for each claim: used, ms until it has room (0: it has,
--          -1: never), ms until it is unused}; {-1, now} when a fixed window is not the current one
local clock = redis.call('TIME')
local second, micros = clock[1], clock[2] + 0
local now = second * 1000 + (micros - micros % 1000) / 1000
local plan, claims, found, denied = ARGV[1], #KEYS, nil, false
local mode = string.byte(plan)
local taking = mode == 116 or mode == 84
local states = redis.call('MGET', unpack(KEYS))

for claim = 1, claims do
  local kind, cost, limit, one, two, three = struct.unpack('>BI6I6I6I6I6', plan, 31 * claim - 29)
  local state, used, wait, reset, next_state, expiry = states[claim], 0, 0, 0, nil, nil

  if kind == 102 then
    local start, finish = one, two
    if (now >= finish or now < start) and mode > 90 then return {-1, now} end
    if state then used = tonumber(state) or 0 end
    reset = finish > now and finish - now or 1
    if used + cost > limit then wait = reset end
    next_state, expiry = used + cost, three

  elseif kind == 115 then
    -- The log: the total, then (end of grain, units) for each grain, the oldest first; six bytes a number.
    local per, grain, log, last, units = one, two, '', 0, 0
    if state and #state > 6 and #state % 12 == 6 then
      local first, stamp, gone = 7, nil, nil
      used, stamp, gone = struct.unpack('>I6I6I6', state)
      while stamp <= now - per do
        used, first = used - gone, first + 12
        if first > #state then break end
        stamp, gone = struct.unpack('>I6I6', state, first)
      end
      if first < #state then
        log = string.sub(state, first)
        last, units = struct.unpack('>I6I6', log, #log - 11)
        reset = last + per - now
      end
    end
    if used + cost > limit then
      local over, first = used + cost - limit, 1
      wait = -1
      while over > 0 and first < #log do
        local stamp, gone = struct.unpack('>I6I6', log, first)
        over, first, wait = over - gone, first + 12, stamp + per - now
      end
    else
      local total, stamp, added = struct.pack('>I6', used + cost), now - now % grain + grain, cost
      if last >= stamp then  -- the same grain; or the clock was set back, and units stay for longer
        stamp, added, log = last, units + cost, string.sub(log, 1, -13)
      end
      next_state, expiry = total .. log .. struct.pack('>I6I6', stamp, added), stamp + per
    end

  else
    local interval, parts, time, present = one, two, three, second * 1000000 + micros
    local full = state and tonumber(state) or present  -- the moment at which the bucket is full again
    if full < present then full = present end
    used = full - present
    reset = (used + 999 - (used + 999) % 1000) / 1000
    full = full + math.ceil(cost * interval / parts)
    local over = full - present - time
    if over > 0 then wait = (over + 999 - (over + 999) % 1000) / 1000 end
    next_state, expiry = full, (full - full % 1000) / 1000 + 1
  end

  if wait ~= 0 then
    taking, denied = false, true
    if cost > limit then wait = -1 end
  elseif claims == 1 and taking then
    redis.call('SET', KEYS[1], next_state, 'PXAT', expiry)
    return struct.pack('>I6I6', now, used)
  end
  if not found then found = {} end
  found[claim] = {used, wait, reset, next_state, expiry}
end

if taking then
  local reply = struct.pack('>I6', now)
  for claim = 1, claims do
    local it = found[claim]
    redis.call('SET', KEYS[claim], it[4], 'PXAT', it[5])
    reply = reply .. struct.pack('>I6', it[1])
  end
  return reply
end
local reply = {denied and 0 or 1, now}
for claim = 1, claims do
  for column = 1, 3 do reply[#reply + 1] = found[claim][column] end
end
return reply

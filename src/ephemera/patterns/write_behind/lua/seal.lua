-- Seals pending entries of a shard as a numbered batch, or claims the batch that is sealed already.
-- A shard has at most one sealed batch, so its batches are ordered, and SQL only has to remember the last number.
--
-- Records are sealed in place: the batch is the front of the list. Counters are moved from the pending hash to the
-- sealed one, a bounded number of them per call: a call that has not filled its batch yet returns 1, and its flusher
-- calls again. The batch gets its number when it is complete; until then nothing of it can be in SQL, and the flusher
-- with the claim keeps filling it. A pass visits every counter that was pending when it began: `cursor` is where it is.
-- KEYS[1]  the shard's state: a hash
-- KEYS[2]  the pending entries: a hash of counters, or a list of records whose front becomes the batch
-- KEYS[3]  for counters: the sealed ones
-- ARGV[1]  the flusher's id
-- ARGV[2]  how long no other flusher is given the batch, in milliseconds
-- ARGV[3]  the epoch to use if the shard has no state yet
-- ARGV[4]  the age in milliseconds at which pending entries are due
-- ARGV[5]  the number of entries that are due at any age, and the maximum size of a batch
-- ARGV[6]  for counters: how many this call may move
-- ARGV[7]  for counters: 1 to begin a new pass
-- RETURNS  {epoch, number, count, 1 if this call completed it, 1 if entries may be left, its age in milliseconds};
--          1 call again; 0 another flusher has claimed it; nil nothing is due
local state, pending, sealed = KEYS[1], KEYS[2], KEYS[3]
local flusher, batch_size = ARGV[1], tonumber(ARGV[5])
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local number, count, claimed_by, claimed_until, since, last, filling, cursor, pass_began = unpack(redis.call(
  'HMGET', state, 'sealed', 'count', 'claimed_by', 'claimed_until', 'since', 'last', 'filling', 'cursor', 'pass_began'))
local fresh, more = 0, 1

-- A whole number that this script could have written, else nil: another program may have written anything.
local function whole(text)
  local value = text and string.match(text, '^%d+$') and #text <= 16 and tonumber(text)
  return value and value <= 9007199254740991 and value or nil
end

local function is_amount(text)
  return #text <= 17 and string.match(text, '^-?%d+$')
end

local function next_number()
  -- Larger than every earlier number: by the state, or by the clock where the state was lost.
  return math.max(now, (whole(last) or 0) + 1)
end

if (number or filling) and claimed_by ~= flusher and (whole(claimed_until) or 0) > now then return 0 end

-- Moves some of the counters found. One that was added to since an earlier call moved it is in both hashes, and its amounts
-- are added up; one with an idempotency key (':key:...') is the same addition, made again.
local function move(found, first, upto)
  local fields, new = {}, {}
  for i = first, upto do fields[#fields + 1] = found[2 * i - 1] end
  local before = redis.call('HMGET', sealed, unpack(fields))
  for i, field in ipairs(fields) do
    local amount = found[2 * (first + i) - 2]
    if before[i] and string.sub(field, 1, 1) ~= ':' and is_amount(before[i]) and is_amount(amount) then
      redis.call('HINCRBY', sealed, field, amount)
    else
      new[#new + 1], new[#new + 2] = field, amount
    end
  end
  if #new > 0 then redis.call('HSET', sealed, unpack(new)) end
  redis.call('HDEL', pending, unpack(fields))
end

-- Moves counters until this call's share or the batch is full, or the pass is over; true when the pass is over.
local function fill()
  if ARGV[7] == '1' or not whole(pass_began) or not string.match(cursor or '', '^%d+$') then
    cursor, pass_began = '0', string.format('%.0f', math.floor(now / 1000))
  end
  local room, scans = math.min(tonumber(ARGV[6]), batch_size - redis.call('HLEN', sealed)), 0
  repeat
    scans = scans + 1
    local reply = redis.call('HSCAN', pending, cursor, 'COUNT', 500)
    local found = reply[2]
    local taken = math.min(#found / 2, room)
    for first = 1, taken, 1000 do move(found, first, math.min(first + 999, taken)) end
    room = room - taken
    if taken < #found / 2 then return false end  -- the same cursor finds the rest of them
    cursor = reply[1]
    if cursor == '0' then return true end
  until room == 0 or scans == 20  -- a sparse hash has many empty places
  return false
end

if number then
  local size = redis.call(sealed and 'HLEN' or 'LLEN', sealed or pending)
  number, count = whole(number), whole(count)
  if not number or not count or count > size then
    number = number or next_number()
    count = count and math.min(count, size) or (sealed and size or math.min(size, batch_size))
    redis.call('HSET', state, 'sealed', number, 'last', number, 'count', count)
  end
else
  local size = redis.call(sealed and 'HLEN' or 'LLEN', pending)
  if not filling then
    if size == 0 then return false end
    if size < batch_size and now / 1000 - (tonumber(since) or 0) < tonumber(ARGV[4]) then return false end
    if sealed then redis.call('UNLINK', sealed) end  -- there is none, unless the state was lost
  end
  if sealed then
    if fill() then
      more = 0
      if redis.call('EXISTS', pending) == 0 then
        redis.call('HDEL', state, 'since')
      else  -- what is left was added during the pass
        redis.call('HSET', state, 'since', pass_began)
      end
      redis.call('HDEL', state, 'cursor', 'pass_began')
    else
      redis.call('HSET', state, 'cursor', cursor, 'pass_began', pass_began)
    end
    count = redis.call('HLEN', sealed)
    if more == 1 and count < batch_size then
      redis.call('HSET', state, 'filling', 1, 'claimed_by', flusher, 'claimed_until', now + ARGV[2] * 1000)
      return 1
    end
    redis.call('HDEL', state, 'filling')
    if count == 0 then
      redis.call('HDEL', state, 'claimed_by', 'claimed_until')
      return false
    end
  else
    count = math.min(size, batch_size)
    if count == size then
      more = 0
      redis.call('HDEL', state, 'since')
    end
  end
  number, fresh = next_number(), 1
  redis.call('HSET', state, 'sealed', number, 'last', number, 'count', count)
end
local epoch = redis.call('HGET', state, 'epoch')
if not epoch or not string.match(epoch, '^[%w_-]+$') then
  epoch = ARGV[3]
  redis.call('HSET', state, 'epoch', epoch)
end
redis.call('HSET', state, 'claimed_by', flusher, 'claimed_until', now + ARGV[2] * 1000)
local age = math.max(0, math.floor((now - number) / 1000))
return {epoch, number, count, fresh, more, age}

-- Corrects the units that claims took, where and when they took them, and announces it when that makes room.
-- KEYS[i]  the state of claim i; of a fixed window, the one that was taken from
-- ARGV[1]  the channel on which room is announced
-- ARGV[2]  and on, for each claim: its id, and by its algorithm
--          'fixed' units expiry          ms since 1970: when the key expires
--          'sliding' units per stamp     ms: the end of the grain that the units were taken in
--          'bucket' units interval parts ends  one unit takes interval/parts us to come back; all that the claim took
--                                              had come back at `ends`, in us since 1970
--          units are added when above 0, whatever the limit, and given back when below
-- RETURNS  how many claims were corrected; units whose time is over need no correction
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local at, corrected, freed = 2, 0, {}

for claim = 1, #KEYS do
  local key, id, kind, units = KEYS[claim], ARGV[at], ARGV[at + 1], tonumber(ARGV[at + 2])
  local state, done = redis.call('MGET', key)[1], false -- of another type: nothing, as when taking

  if kind == 'fixed' then
    local used = state and tonumber(state) or 0
    local left = math.max(0, used + units)
    if left ~= used and tonumber(ARGV[at + 3]) > now then
      redis.call('SET', key, left, 'PXAT', ARGV[at + 3])
      done = true
    end
    at = at + 4

  elseif kind == 'sliding' then
    local per, stamp = tonumber(ARGV[at + 3]), tonumber(ARGV[at + 4])
    local log, total, last, before, left = '', 0, 0, nil, stamp > now - per and -units or 0
    local position = state and #state % 12 == 6 and 7 or math.huge
    while position < #(state or '') do
      local moment, count = struct.unpack('>I6I6', state, position)
      position = position + 12
      if units > 0 then
        if moment == stamp then before, count = count, count + units end
      elseif moment >= stamp and moment - stamp <= math.ceil(per / 60) and left > 0 and count > 0 then
        -- A tier with longer grains may have written the newest entry: units taken after that are in it.
        before = math.min(count, left)
        count, left = count - before, left - before
      end
      if moment > now - per and count > 0 then
        log, total, last = log .. struct.pack('>I6I6', moment, count), total + count, moment
      end
    end
    if not before and units > 0 and stamp > now - per then
      last, total = math.max(last, stamp), total + units
      log, before = log .. struct.pack('>I6I6', last, units), 0
    end
    done = before ~= nil
    if done and total == 0 then
      redis.call('DEL', key)
    elseif done then
      redis.call('SET', key, struct.pack('>I6', total) .. log, 'PXAT', last + per)
    end
    at = at + 5

  else
    local present = clock[1] * 1000000 + clock[2]
    local full = math.max(present, state and tonumber(state) or 0)
    local change = math.ceil(units * ARGV[at + 3] / ARGV[at + 4])
    if change < 0 then change = math.max(change, math.min(0, present - ARGV[at + 5])) end -- the rest has come back
    local left = full + change
    done = change ~= 0 and (left > present or full > present)
    if left > present then
      redis.call('SET', key, left, 'PXAT', math.floor(left / 1000) + 1)
    elseif done then
      redis.call('DEL', key)
    end
    at = at + 6
  end

  if done then
    corrected = corrected + 1
    if units < 0 then freed[#freed + 1] = id end
  end
end
if #freed > 0 then redis.call('PUBLISH', ARGV[1], table.concat(freed, '\n')) end
return corrected

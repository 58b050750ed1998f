package redisstore

// ExpireAgreements makes the store check each namespace again, as it does every sampleEvery.
func (s *Store) ExpireAgreements() { s.checked.Clear() }
